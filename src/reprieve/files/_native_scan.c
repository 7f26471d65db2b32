/* scan: compare a tree on disk with its index, and say what is new, changed, gone or out of reach. */
#include "_native_scan.h"

static int compare_found(const found_t *a, const found_t *b)
{
    return path_cmp(a->text + a->path, a->row.path_len, b->text + b->path, b->row.path_len);
}

static int compare_problems(const void *x, const void *y)
{
    const problem_t *a = x, *b = y;
    int c = path_cmp(a->text + a->path, a->len, b->text + b->path, b->len);
    return c ? c : a->error - b->error;
}

/* Natural merge sort: each job's entries are in order already, so there are only as many runs as jobs. */
static bool sort_found(found_t **a, size_t n)
{
    found_t **b = malloc((n + 1) * sizeof *b);
    size_t runs = 2;
    if (!b)
        return false;
    while (runs > 1) {
        size_t i = 0;
        for (runs = 0; i < n; runs++) {
            size_t mid = i + 1, end, x = i, o = i;
            while (mid < n && compare_found(a[mid - 1], a[mid]) <= 0)
                mid++;
            for (end = mid + 1; end < n && compare_found(a[end - 1], a[end]) <= 0;)
                end++;
            if (mid >= n)
                end = n;
            size_t y = mid;
            while (x < mid || y < end)
                b[o++] = y >= end || (x < mid && compare_found(a[x], a[y]) <= 0) ? a[x++] : a[y++];
            memcpy(a + i, b + i, (end - i) * sizeof *a);
            i = end;
        }
    }
    free(b);
    return true;
}

/* Returns the last row of the subtree. */
static uint64_t mark_subtree_gone(scan_t *s, uint64_t dir)
{
    const tree_t *t = s->index;
    uint64_t i = dir + 1;
    for (; i < t->count; i++) {
        if (!is_below(row_path(t, i), t->rows[i].path_len, row_path(t, dir), t->rows[dir].path_len))
            break;
        s->gone[i] = 1;
    }
    return i - 1;
}

static PyObject *scan_rows(scan_t *s, walker_t *w)
{
    size_t n = 0, total = w[0].found_count + w[1].found_count;
    uint64_t paths = 0, extras = 0, p = 0, x = 0;
    const tree_t *t = s->index;
    found_t **all = malloc((total + 1) * sizeof *all);
    tree_t out;
    if (!all)
        return PyErr_NoMemory();
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < w[k].found_count; i++) {
            found_t *f = all[n++] = &w[k].found[i];
            f->text = w[k].text;
            /* Two walkers may have seen a directory before and after it was replaced: the rows agree with its own. */
            if (f->known >= 0 && t->rows[f->known].kind == 'd' && f->row.kind != 'd')
                mark_subtree_gone(s, (uint64_t)f->known);
        }
    for (uint64_t i = 0; i < t->count; i++)
        if (s->gone[i] && t->rows[i].kind == 'd')
            i = mark_subtree_gone(s, i);
    if (!sort_found(all, n)) {
        free(all);
        return PyErr_NoMemory();
    }
    total = n;
    n = 0;
    for (size_t i = 0; i < total; i++) {
        found_t *f = all[i];
        if ((f->known >= 0 && s->gone[f->known]) || (n && !compare_found(all[n - 1], f)))
            continue;
        all[n++] = f;
        paths += f->row.path_len;
        extras += f->row.extra_len;
    }
    PyObject *tree = new_tree(&out, n, paths, extras, NULL);
    for (size_t i = 0; tree && i < n; i++) {
        found_t *f = all[i];
        f->row.path_off = (uint32_t)p;
        memcpy((uint8_t *)out.paths + p, f->text + f->path, f->row.path_len);
        p += f->row.path_len;
        if (f->row.extra_len) {
            uint32_t len = f->row.extra_len - 8;
            uint8_t *e = (uint8_t *)out.extras + x;
            f->row.extra_off = (uint32_t)x;
            memcpy(e, &len, 4);
            memcpy(e + 4, f->text + f->target, len);
            memset(e + 4 + len, 0, 4); /* no xattrs, no gap */
            x += f->row.extra_len;
        }
        out.rows[i] = f->row;
    }
    if (tree)
        seal(tree);
    free(all);
    return tree;
}

/* The skip set as sorted arrays; `held` keeps the bytes objects alive. */
static bool read_skips(scan_t *s, PyObject *skip, PyObject **held)
{
    if (!(*held = skip ? PySequence_List(skip) : PyList_New(0)))
        return false;
    size_t n = s->skip_count = (size_t)PyList_GET_SIZE(*held);
    PyObject **items = ((PyListObject *)*held)->ob_item;
    s->skip = calloc(n + 1, sizeof *s->skip);
    s->skip_len = calloc(n + 1, sizeof *s->skip_len);
    if (!s->skip || !s->skip_len)
        return PyErr_NoMemory() != NULL;
    for (size_t i = 0; i < n; i++)
        if (!PyBytes_Check(items[i])) {
            PyErr_SetString(PyExc_TypeError, "skip must hold bytes");
            return false;
        }
    if (n > 1)
        qsort(items, n, sizeof *items, compare_bytes);
    for (size_t i = 0; i < n; i++) {
        s->skip[i] = (const uint8_t *)PyBytes_AS_STRING(items[i]);
        s->skip_len[i] = (size_t)PyBytes_GET_SIZE(items[i]);
    }
    return true;
}

/* The rows to look at: 32-bit numbers that rise, each of a row that there is. */
static bool read_look(scan_t *s, PyObject *look, Py_buffer *view)
{
    if (!look || look == Py_None)
        return true;
    if (PyObject_GetBuffer(look, view, PyBUF_SIMPLE) < 0)
        return false;
    s->look = view->buf;
    s->look_count = (uint64_t)view->len / 4;
    bool rises = view->len % 4 == 0 && (uintptr_t)view->buf % 4 == 0;
    for (uint64_t i = 0; rises && i < s->look_count; i++)
        rises = s->look[i] < s->index->count && (!i || s->look[i - 1] < s->look[i]);
    if (!rises)
        PyErr_SetString(PyExc_ValueError, "look must hold rising numbers of rows");
    return rises;
}

static PyObject *scan_answer(scan_t *s, walker_t *w)
{
    const tree_t *t = s->index;
    PyObject *rows = scan_rows(s, w), *gone = PyList_New(0), *problems = PyList_New(0), *answer = NULL;
    size_t n = 0, total = w[0].problem_count + w[1].problem_count;
    problem_t *all = malloc((total + 1) * sizeof *all);
    if (!all)
        PyErr_NoMemory();
    if (!rows || !gone || !problems || !all)
        goto done;
    for (uint64_t i = 0; i < t->count; i++) {
        if (!s->gone[i])
            continue;
        PyObject *path = PyBytes_FromStringAndSize((const char *)row_path(t, i), t->rows[i].path_len);
        if (!path || PyList_Append(gone, path) < 0) {
            Py_XDECREF(path);
            goto done;
        }
        Py_DECREF(path);
    }
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < w[k].problem_count; i++) {
            all[n] = w[k].problems[i];
            all[n++].text = w[k].text;
        }
    if (n > 1)
        qsort(all, n, sizeof *all, compare_problems);
    for (size_t i = 0; i < n; i++) {
        PyObject *item = Py_BuildValue("y#iO", all[i].text + all[i].path, (Py_ssize_t)all[i].len, all[i].error,
                                       all[i].is_dir ? Py_True : Py_False);
        if (!item || PyList_Append(problems, item) < 0) {
            Py_XDECREF(item);
            goto done;
        }
        Py_DECREF(item);
    }
    answer = PyTuple_Pack(3, rows, gone, problems);
done:
    free(all);
    Py_XDECREF(rows);
    Py_XDECREF(gone);
    Py_XDECREF(problems);
    return answer;
}

/* A whole scan, from what was asked for to its answer. */
typedef struct {
    scan_t s;
    walker_t w[2];
    tree_t tree;
    Py_buffer index, look;
    PyObject *held;
    pthread_t thread; /* of w[1], if `begun` */
    pid_t owner;
    bool begun;
    bool is_checked;   /* under the scan's lock: */
    const char *fault; /* what is wrong with the index, if that is left to the thread */
} task_t;

static void free_task(task_t *t)
{
    for (int k = 0; k < 2; k++) {
        free(t->w[k].found);
        free(t->w[k].problems);
        free(t->w[k].text);
        free(t->w[k].levels);
        free(t->w[k].path);
        free(t->w[k].buf);
    }
    while (t->s.job_count)
        free(t->s.jobs[--t->s.job_count].path);
    free(t->s.jobs);
    free(t->s.gone);
    free(t->s.skip);
    free(t->s.skip_len);
    Py_XDECREF(t->held);
    PyBuffer_Release(&t->look);
    PyBuffer_Release(&t->index);
    free(t);
}

/* Everything that needs the interpreter; NULL with an exception. The task must not move: its parts point at each other. */
static task_t *new_task(PyObject *args, PyObject *kwargs, bool check)
{
    static char *names[] = {"root_fd", "index", "floor_s", "floor_ns", "cross_mounts", "accept", "skip", "look", NULL};
    PyObject *index, *accept = Py_None, *skip = NULL, *look = NULL;
    long long floor_s, floor_ns;
    int root, cross = 0;
    struct stat st;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iOLL|pOOO", names, &root, &index, &floor_s, &floor_ns, &cross,
                                     &accept, &skip, &look))
        return NULL;
    if (fstat(root, &st))
        return (task_t *)PyErr_SetFromErrno(PyExc_OSError);
    task_t *t = calloc(1, sizeof *t);
    if (!t)
        return (task_t *)PyErr_NoMemory();
    scan_t *s = &t->s;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    t->w[0].s = t->w[1].s = s;
    if (!load(index, &t->index, &t->tree, check, true)) {
        free(t);
        return NULL;
    }
    s->index = &t->tree;
    s->root = root;
    s->root_dev = st.st_dev;
    s->floor_s = floor_s;
    s->floor_ns = floor_ns;
    s->cross_mounts = cross;
    s->accept = accept == Py_None ? NULL : accept;
    bool ready = read_look(s, look, &t->look);
    s->parallel = !s->accept && !s->look && (t->tree.count == 0 || t->tree.count > 512);
    s->chunk = 64;
    if (s->look)
        s->chunk = s->look_count; /* in one go: a directory that is looked at comes before what is in it */
    s->gone = calloc(t->tree.count + 1, 1);
    ready = ready && s->gone && read_skips(s, skip, &t->held);
    for (int k = 0; k < 2; k++) {
        t->w[k].path = malloc(PATH_LIMIT + NAME_LIMIT + 2);
        t->w[k].buf = malloc(BUF_SIZE);
        if (!t->w[k].path || !t->w[k].buf)
            ready = false;
    }
    if (!ready) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        free_task(t);
        return NULL;
    }
    if (t->tree.count == 0)
        add_job(s, (const uint8_t *)"", 0, -1);
    return t;
}

static PyObject *answer_of(task_t *t)
{
    if (t->fault)
        return raise_fault(t->fault);
    if (t->s.no_memory && !PyErr_Occurred())
        PyErr_NoMemory();
    else if (t->s.torn && !PyErr_Occurred())
        PyErr_SetString(PyExc_LookupError, "a directory that was not to be looked at is not there");
    return PyErr_Occurred() ? NULL : scan_answer(&t->s, t->w);
}

PyObject *py_scan(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    task_t *t = new_task(args, kwargs, true);
    if (!t)
        return NULL;
    t->s.ts = PyEval_SaveThread();
    run_threads(scan_worker, &t->w[0], t->s.parallel ? &t->w[1] : NULL);
    PyEval_RestoreThread(t->s.ts);
    PyObject *answer = answer_of(t);
    free_task(t);
    return answer;
}

/* ---- a scan beside other work ------------------------------------------------------------------------------------ */

static const char TASK[] = "reprieve.scan";

/* Nobody wants the answer any more. */
static void drop_task(PyObject *capsule)
{
    task_t *t = PyCapsule_GetPointer(capsule, TASK);
    if (!t)
        return;
    if (t->owner != getpid())
        return; /* the thread stayed behind in the process that was forked, and may have had the lock */
    t->s.stop = true;
    if (t->begun)
        pthread_join(t->thread, NULL);
    free_task(t);
}

/* The index is looked at here: it is the first to be read, and that takes as long as loading some modules. */
static void work_beside(void *arg)
{
    task_t *t = arg;
    const char *fault = tree_fault(&t->tree, true);
    pthread_mutex_lock(&t->s.lock);
    t->fault = fault;
    t->is_checked = true;
    if (fault)
        t->s.stop = true;
    pthread_cond_broadcast(&t->s.wake);
    pthread_mutex_unlock(&t->s.lock);
    scan_worker(&t->w[1]);
}

PyObject *py_scan_begin(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    task_t *t = new_task(args, kwargs, false);
    if (!t)
        return NULL;
    t->owner = getpid();
    t->begun = t->s.parallel && has_other_processor() && start_thread(&t->thread, work_beside, t);
    if (!t->begun) {
        free_task(t);
        Py_RETURN_NONE;
    }
    PyObject *capsule = PyCapsule_New(t, TASK, drop_task);
    if (!capsule) {
        t->s.stop = true;
        pthread_join(t->thread, NULL);
        free_task(t);
    }
    return capsule;
}

PyObject *py_scan_end(PyObject *module, PyObject *capsule)
{
    (void)module;
    task_t *t = PyCapsule_GetPointer(capsule, TASK);
    if (!t)
        return NULL;
    if (t->owner != getpid() || !t->begun) {
        PyErr_SetString(PyExc_ValueError, "this scan is over, or another process's");
        return NULL;
    }
    t->begun = false;
    t->s.ts = PyEval_SaveThread();
    pthread_mutex_lock(&t->s.lock);
    while (!t->is_checked)
        pthread_cond_wait(&t->s.wake, &t->s.lock);
    pthread_mutex_unlock(&t->s.lock);
    scan_worker(&t->w[0]); /* what is left is done by two */
    pthread_join(t->thread, NULL);
    PyEval_RestoreThread(t->s.ts);
    return answer_of(t);
}
