/* Many names at once between a tree and a stage beside it, and what might stand in their way. */
#include "_native.h"

#include <sys/statvfs.h>
#include <sys/xattr.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

int rename_with(int from, const char *old, int to, const char *new, unsigned flags)
{
    if (flags == 0)
        return renameat(from, old, to, new);
#if defined(__linux__) && defined(SYS_renameat2)
    return (int)syscall(SYS_renameat2, from, old, to, new, flags);
#elif defined(__APPLE__)
    return renameatx_np(from, old, to, new, flags == 1 ? RENAME_EXCL : RENAME_SWAP);
#else
    errno = ENOSYS;
    return -1;
#endif
}

/* ---- move_many ------------------------------------------------------------------------------------------------ */

enum { SWAP, OUT, IN };
enum { NOREPLACE = 1, EXCHANGE = 2, LOOK_CLOSER = -1 };

typedef struct {
    int what;
    const uint8_t *path;
    size_t len;
    const char *name; /* in the stage */
    mode_t type;
    unsigned long long ino;
    long long size; /* -1: any */
    struct timespec mtime, ctime;
    bool by_ctime;
} move_t;

typedef struct {
    parent_t dir;
    const uint8_t *seen; /* the directory that `is_open` is about */
    bool is_open;
} walk_t;

/* The path's directory, if names in it may change as it is. */
static bool enter(walk_t *w, const move_t *m)
{
    struct stat st;
    if (open_parent(&w->dir, m->path, m->len) < 0)
        return false;
    if (w->dir.path != w->seen) {
        w->seen = w->dir.path;
        w->is_open = !fstat(w->dir.fd, &st) && ((st.st_mode & 0700) == 0700 || st.st_uid != geteuid());
    }
    return w->is_open;
}

static bool same_time(struct timespec a, struct timespec b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

static bool is_expected(const move_t *m, const struct stat *st)
{
    return st->st_ino == m->ino && (st->st_mode & S_IFMT) == m->type && (m->size < 0 || st->st_size == m->size) &&
           (m->by_ctime ? same_time(st->CTIM, m->ctime) : same_time(st->MTIM, m->mtime));
}

static int move_one(walk_t *w, int stage, const move_t *m)
{
    struct stat was, now;
    if (!m->len || !path_clean(m->path, m->len, 0) || !enter(w, m))
        return LOOK_CLOSER;
    int dir = w->dir.fd, there = fstatat(dir, w->dir.name, &was, AT_ENTRY);
    if (m->what == IN)
        return there && errno == ENOENT && !rename_with(stage, m->name, dir, w->dir.name, NOREPLACE) ? 0 : LOOK_CLOSER;
    if (there || !is_expected(m, &was))
        return LOOK_CLOSER;
    bool is_swap = m->what == SWAP;
    if (is_swap ? rename_with(stage, m->name, dir, w->dir.name, EXCHANGE) : rename_with(dir, w->dir.name, stage, m->name, NOREPLACE))
        return LOOK_CLOSER;
    if (fstatat(stage, m->name, &now, AT_ENTRY))
        return errno;
    if (now.st_ino == was.st_ino && now.st_size == was.st_size && same_time(now.MTIM, was.MTIM))
        return 0;
    /* somebody was faster: what came out is not what was looked at, so it goes back */
    return rename_with(stage, m->name, dir, w->dir.name, is_swap ? EXCHANGE : NOREPLACE) ? errno : LOOK_CLOSER;
}

static bool read_move(PyObject *tuple, move_t *m)
{
    PyObject *path, *name;
    long long mtime_s, ctime_s;
    long mtime_ns, ctime_ns;
    unsigned type;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "move_many takes tuples");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "iSSIKLLlLl", &m->what, &path, &name, &type, &m->ino, &m->size, &mtime_s, &mtime_ns, &ctime_s, &ctime_ns))
        return false;
    m->path = (const uint8_t *)PyBytes_AS_STRING(path);
    m->len = (size_t)PyBytes_GET_SIZE(path);
    m->name = PyBytes_AS_STRING(name);
    m->type = (mode_t)type;
    m->mtime = (struct timespec){.tv_sec = (time_t)mtime_s, .tv_nsec = mtime_ns};
    m->ctime = (struct timespec){.tv_sec = (time_t)ctime_s, .tv_nsec = ctime_ns};
    m->by_ctime = ctime_ns >= 0;
    if (m->what < SWAP || m->what > IN || !is_name(m->name, (size_t)PyBytes_GET_SIZE(name))) {
        PyErr_SetString(PyExc_ValueError, "move_many: no such move, or no single name");
        return false;
    }
    return true;
}

static PyObject *numbers(const int *codes, size_t count)
{
    PyObject *out = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; out && i < count; i++) {
        PyObject *code = PyLong_FromLong(codes[i]);
        if (code)
            PyList_SET_ITEM(out, (Py_ssize_t)i, code);
        else
            Py_CLEAR(out);
    }
    return out;
}

PyObject *py_move_many(PyObject *module, PyObject *args)
{
    walk_t walk = {.dir = {.fd = -1}};
    int stage;
    PyObject *items, *out = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "iiO", &walk.dir.root, &stage, &items))
        return NULL;
    PyObject *list = PySequence_Tuple(items); /* holds paths and names while the GIL is released */
    if (!list)
        return NULL;
    size_t n = (size_t)PyTuple_GET_SIZE(list), got = 0;
    move_t *moves = calloc(n + 1, sizeof *moves);
    int *codes = calloc(n + 1, sizeof *codes);
    if (!moves || !codes)
        PyErr_NoMemory();
    while (moves && codes && got < n && read_move(PyTuple_GET_ITEM(list, (Py_ssize_t)got), &moves[got]))
        got++;
    if (moves && codes && got == n) {
        Py_BEGIN_ALLOW_THREADS
        bool is_stopped = false; /* what is half done is for the caller to take back, and no more of it */
        for (size_t i = 0; i < n; i++) {
            codes[i] = is_stopped ? LOOK_CLOSER : move_one(&walk, stage, &moves[i]);
            is_stopped = is_stopped || codes[i] > 0;
        }
        close_quietly(walk.dir.fd);
        Py_END_ALLOW_THREADS
        out = numbers(codes, n);
    }
    free(moves);
    free(codes);
    Py_DECREF(list);
    return out;
}

/* ---- obstacles ------------------------------------------------------------------------------------------------ */

typedef struct {
    int flags; /* 1 immutable, 2 append-only; -1: nothing is there, or the system does not tell in this way */
    unsigned mode, uid;
    bool is_read_only, is_reached;
} look_t;

static void look_at(int dir, const char *name, look_t *l)
{
    l->flags = -1;
#if defined(__linux__) && defined(STATX_ATTR_IMMUTABLE) && defined(STATX_ATTR_APPEND)
    struct statx st;
    unsigned wanted = STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND;
    if (statx(dir, name, AT_ENTRY | (*name ? 0 : AT_EMPTY_PATH), STATX_MODE | STATX_UID, &st))
        return;
    l->mode = st.stx_mode;
    l->uid = st.stx_uid;
    if ((st.stx_attributes_mask & wanted) == wanted)
        l->flags = (st.stx_attributes & STATX_ATTR_IMMUTABLE ? 1 : 0) | (st.stx_attributes & STATX_ATTR_APPEND ? 2 : 0);
#else
    struct stat st;
    if (*name ? fstatat(dir, name, &st, AT_ENTRY) : fstat(dir, &st))
        return;
    l->mode = st.st_mode;
    l->uid = st.st_uid;
#endif
}

static bool is_read_only(int fd)
{
    struct statvfs fs;
    return !fstatvfs(fd, &fs) && fs.f_flag & ST_RDONLY;
}

PyObject *py_look_at(PyObject *module, PyObject *args)
{
    parent_t dir = {.fd = -1};
    PyObject *paths, *out = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "iO", &dir.root, &paths))
        return NULL;
    PyObject *list = PySequence_Tuple(paths); /* holds the paths while the GIL is released */
    if (!list)
        return NULL;
    size_t n = (size_t)PyTuple_GET_SIZE(list);
    look_t *looks = calloc(n + 1, sizeof *looks);
    if (!looks)
        PyErr_NoMemory();
    for (size_t i = 0; looks && i < n && !PyErr_Occurred(); i++)
        if (!PyBytes_Check(PyTuple_GET_ITEM(list, (Py_ssize_t)i)))
            PyErr_SetString(PyExc_TypeError, "paths must be bytes");
    if (!PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS
        const uint8_t *seen = NULL;
        bool is_root_closed = is_read_only(dir.root), is_closed = false;
        for (size_t i = 0; i < n; i++) {
            PyObject *path = PyTuple_GET_ITEM(list, (Py_ssize_t)i);
            const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(path);
            size_t len = (size_t)PyBytes_GET_SIZE(path);
            look_t *l = &looks[i];
            if (!path_clean(p, len, 0) || (len && open_parent(&dir, p, len) < 0))
                continue;
            if (len && dir.path != seen) {
                seen = dir.path;
                is_closed = is_read_only(dir.fd);
            }
            l->is_reached = true;
            l->is_read_only = len ? is_closed : is_root_closed;
            look_at(len ? dir.fd : dir.root, len ? dir.name : "", l);
        }
        close_quietly(dir.fd);
        Py_END_ALLOW_THREADS
        out = PyList_New((Py_ssize_t)n);
    }
    for (size_t i = 0; out && i < n; i++) {
        const look_t *l = &looks[i];
        PyObject *item = l->is_reached ? Py_BuildValue("(iIIO)", l->flags, l->mode, l->uid, l->is_read_only ? Py_True : Py_False) : Py_NewRef(Py_None);
        if (item)
            PyList_SET_ITEM(out, (Py_ssize_t)i, item);
        else
            Py_CLEAR(out);
    }
    free(looks);
    Py_DECREF(list);
    return out;
}

/* ---- with_xattrs ---------------------------------------------------------------------------------------------- */

typedef struct {
    int root;
    const tree_t *tree;
    bool *found;
    atomic_size_t next;
} xattrs_t;

enum { AT_A_TIME = 32 };

static bool may_have_xattrs(parent_t *dir, const uint8_t *path, size_t len)
{
    int fd = -1;
    if (!len)
        fd = openat_again(dir->root, ".", O_DIRFD, 0);
    else if (open_parent(dir, path, len) >= 0)
        fd = openat_again(dir->fd, dir->name, O_DIRFD, 0);
    if (fd < 0)
        return true;
#ifdef __APPLE__
    ssize_t size = flistxattr(fd, NULL, 0, 0);
#else
    ssize_t size = flistxattr(fd, NULL, 0);
#endif
    bool has = size > 0 || (size < 0 && errno != ENOTSUP && errno != ENODATA);
    close(fd);
    return has;
}

static void xattrs_worker(void *arg)
{
    xattrs_t *x = arg;
    parent_t dir = {.root = x->root, .fd = -1};
    size_t from;
    while ((from = atomic_fetch_add(&x->next, AT_A_TIME)) < x->tree->count)
        for (size_t i = from; i < from + AT_A_TIME && i < x->tree->count; i++)
            if (x->tree->rows[i].kind == 'd')
                x->found[i] = may_have_xattrs(&dir, row_path(x->tree, i), x->tree->rows[i].path_len);
    close_quietly(dir.fd);
}

PyObject *py_with_xattrs(PyObject *module, PyObject *args)
{
    Py_buffer view;
    tree_t tree;
    xattrs_t x = {.tree = &tree};
    PyObject *out = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "iy*", &x.root, &view))
        return NULL;
    const char *fault = tree_open(&tree, view.buf, (size_t)view.len);
    for (uint64_t i = 0; !fault && i < tree.count; i++)
        if (!(fault = row_fault(&tree, i)) && !path_clean(row_path(&tree, i), tree.rows[i].path_len, 0))
            fault = "packed tree: a path is malformed";
    if (!fault && !(x.found = calloc(tree.count + 1, sizeof *x.found)))
        fault = "";
    if (fault)
        raise_fault(fault);
    else {
        Py_BEGIN_ALLOW_THREADS
        run_threads(xattrs_worker, &x, tree.count > 512 ? &x : NULL);
        Py_END_ALLOW_THREADS
        out = PyList_New(0);
    }
    for (uint64_t i = 0; out && i < tree.count; i++) {
        PyObject *row = x.found[i] ? PyLong_FromUnsignedLongLong(i) : NULL;
        if (x.found[i] && (!row || PyList_Append(out, row) < 0))
            Py_CLEAR(out);
        Py_XDECREF(row);
    }
    free(x.found);
    PyBuffer_Release(&view);
    return out;
}
