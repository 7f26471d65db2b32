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

PyObject *py_scan(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"root_fd", "index", "floor_s", "floor_ns", "cross_mounts", "accept", "skip", "look", NULL};
    PyObject *index, *accept = Py_None, *skip = NULL, *look = NULL, *held = NULL, *answer = NULL;
    long long floor_s, floor_ns;
    int cross = 0;
    scan_t s = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};
    walker_t w[2] = {{.s = &s}, {.s = &s}};
    Py_buffer view, rows = {0};
    tree_t tree;
    struct stat st;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iOLL|pOOO", names, &s.root, &index, &floor_s, &floor_ns, &cross,
                                     &accept, &skip, &look))
        return NULL;
    if (fstat(s.root, &st))
        return PyErr_SetFromErrno(PyExc_OSError);
    if (!load(index, &view, &tree, true, true))
        return NULL;
    s.index = &tree;
    s.root_dev = st.st_dev;
    s.floor_s = floor_s;
    s.floor_ns = floor_ns;
    s.cross_mounts = cross;
    s.accept = accept == Py_None ? NULL : accept;
    bool ready = read_look(&s, look, &rows);
    s.parallel = !s.accept && !s.look && (tree.count == 0 || tree.count > 512);
    s.chunk = 64;
    if (s.look)
        s.chunk = s.look_count; /* in one go: a directory that is looked at comes before what is in it */
    s.gone = calloc(tree.count + 1, 1);
    ready = ready && s.gone && read_skips(&s, skip, &held);
    for (int k = 0; k < 2; k++) {
        w[k].path = malloc(PATH_LIMIT + NAME_LIMIT + 2);
        w[k].buf = malloc(BUF_SIZE);
        if (!w[k].path || !w[k].buf)
            ready = false;
    }
    if (!ready) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        goto done;
    }
    if (tree.count == 0)
        add_job(&s, (const uint8_t *)"", 0, -1);
    s.ts = PyEval_SaveThread();
    run_threads(scan_worker, &w[0], s.parallel ? &w[1] : NULL);
    PyEval_RestoreThread(s.ts);
    if (s.no_memory && !PyErr_Occurred())
        PyErr_NoMemory();
    else if (s.torn && !PyErr_Occurred())
        PyErr_SetString(PyExc_LookupError, "a directory that was not to be looked at is not there");
    if (!PyErr_Occurred())
        answer = scan_answer(&s, w);
done:
    for (int k = 0; k < 2; k++) {
        free(w[k].found);
        free(w[k].problems);
        free(w[k].text);
        free(w[k].levels);
        free(w[k].path);
        free(w[k].buf);
    }
    while (s.job_count)
        free(s.jobs[--s.job_count].path);
    free(s.jobs);
    free(s.gone);
    free(s.skip);
    free(s.skip_len);
    Py_XDECREF(held);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&view);
    return answer;
}
