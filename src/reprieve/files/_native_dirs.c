/* Many directories at once: made for a restore, and given their owner, mode and time when their content is there; and
 * what is left over, removed. */
#include "_native.h"

#include <sys/xattr.h>

enum { HAS_XATTRS = -1 };

static int make_one(guest_t *guest, parent_t *dir, const uint8_t *path, size_t len)
{
    if (!len || !path_clean(path, len, 0))
        return EINVAL;
    if (open_parent(dir, path, len) < 0 || create_at(guest, dir->fd, dir->name, true) < 0)
        return errno;
    return 0;
}

PyObject *py_make_dirs(PyObject *module, PyObject *args)
{
    parent_t dir = {.fd = -1};
    rooms_t rooms = {0};
    guest_t guest = {.rooms = &rooms};
    PyObject *paths, *fds = NULL, *out = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "iO|O", &dir.root, &paths, &fds) || !read_rooms(fds, &rooms))
        return NULL;
    PyObject *list = PySequence_Tuple(paths);
    if (list)
        out = PyList_New(PyTuple_GET_SIZE(list));
    for (Py_ssize_t i = 0; out && i < PyTuple_GET_SIZE(list); i++) {
        PyObject *path = PyTuple_GET_ITEM(list, i), *error = NULL;
        if (PyBytes_Check(path))
            error = PyLong_FromLong(make_one(&guest, &dir, (const uint8_t *)PyBytes_AS_STRING(path), (size_t)PyBytes_GET_SIZE(path)));
        else
            PyErr_SetString(PyExc_TypeError, "paths must be bytes");
        if (error)
            PyList_SET_ITEM(out, i, error);
        else
            Py_CLEAR(out);
    }
    close_quietly(dir.fd);
    Py_XDECREF(list);
    if (out && !leave_rooms(&rooms))
        Py_CLEAR(out);
    return out;
}

static bool has_mtime(const struct stat *st, struct timespec mtime)
{
    return st->MTIM.tv_sec == mtime.tv_sec && st->MTIM.tv_nsec == mtime.tv_nsec;
}

/* Some file systems (FUSE) take a time that is left out for the present one, or forget the other: then both are set. */
static int set_mtime(int fd, struct stat *st, struct timespec mtime)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, mtime};
    for (int tries = 0; tries < 2 && !has_mtime(st, mtime); tries++) {
        if (futimens(fd, times) || fstat(fd, st))
            return -1;
        times[0] = mtime;
    }
    return 0;
}

static int finish_one(parent_t *parent, const uint8_t *path, size_t len, mode_t mode, uid_t uid, gid_t gid, struct timespec mtime)
{
    struct stat st;
    int error = 0;
    if (!len || !path_clean(path, len, 0) || mtime.tv_nsec < 0 || mtime.tv_nsec > 999999999)
        return EINVAL;
    if (open_parent(parent, path, len) < 0)
        return errno;
    int fd = openat_again(parent->fd, parent->name, O_DIRFD, 0);
    if (fd < 0)
        return errno;
#ifdef __APPLE__
    bool has_xattrs = flistxattr(fd, NULL, 0, 0) > 0;
#else
    bool has_xattrs = flistxattr(fd, NULL, 0) > 0; /* of its own, or inherited from a default ACL */
#endif
    if (has_xattrs)
        error = HAS_XATTRS;
    else if (fstat(fd, &st))
        error = errno;
    else if (((uid != (uid_t)-1 && uid != st.st_uid) || (gid != (gid_t)-1 && gid != st.st_gid)) && fchown(fd, uid, gid))
        error = errno;
    else if (((st.st_mode & 07777) != mode && fchmod(fd, mode)) || set_mtime(fd, &st, mtime) || fstat(fd, &st))
        error = errno;
    else if ((st.st_mode & 07777) != mode)
        error = EPERM;
    close(fd);
    return error;
}

PyObject *py_finish_dirs(PyObject *module, PyObject *args)
{
    parent_t dir = {.fd = -1};
    PyObject *items, *out = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "iO", &dir.root, &items))
        return NULL;
    PyObject *list = PySequence_Tuple(items); /* holds the path that `dir` points to */
    if (list)
        out = PyList_New(PyTuple_GET_SIZE(list));
    for (Py_ssize_t i = 0; out && i < PyTuple_GET_SIZE(list); i++) {
        PyObject *item = PyTuple_GET_ITEM(list, i), *error = NULL;
        const char *path;
        Py_ssize_t len;
        unsigned mode;
        long long uid, gid, sec;
        long ns;
        if (!PyTuple_Check(item))
            PyErr_SetString(PyExc_TypeError, "finish_dirs takes tuples");
        else if (PyArg_ParseTuple(item, "y#ILLLl", &path, &len, &mode, &uid, &gid, &sec, &ns)) {
            struct timespec mtime = {.tv_sec = (time_t)sec, .tv_nsec = ns};
            int code = EINVAL;
            if (uid >= -1 && uid <= UINT32_MAX && gid >= -1 && gid <= UINT32_MAX)
                code = finish_one(&dir, (const uint8_t *)path, (size_t)len, mode & 07777, (uid_t)uid, (gid_t)gid, mtime);
            error = PyLong_FromLong(code);
        }
        if (error)
            PyList_SET_ITEM(out, i, error);
        else
            Py_CLEAR(out);
    }
    close_quietly(dir.fd);
    Py_XDECREF(list);
    return out;
}

/* ---- unlink_many ---------------------------------------------------------------------------------------------- */

typedef struct {
    int dir;
    const char **names;
    int *errors;
    size_t count;
    atomic_size_t next;
} unlink_t;

static void unlink_worker(void *arg)
{
    unlink_t *u = arg;
    size_t i;
    while ((i = atomic_fetch_add(&u->next, 1)) < u->count)
        if (!u->errors[i] && unlinkat(u->dir, u->names[i], 0))
            u->errors[i] = errno;
}

/* Two more of them: with `discard` each file's blocks are waited for, and the disk takes several at a time. */
static void unlink_pair(void *arg)
{
    run_threads(unlink_worker, arg, arg);
}

PyObject *py_unlink_many(PyObject *module, PyObject *args)
{
    unlink_t u = {0};
    PyObject *names, *out = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "iO", &u.dir, &names))
        return NULL;
    PyObject *list = PySequence_Tuple(names); /* holds the names while the GIL is released */
    if (!list)
        return NULL;
    u.count = (size_t)PyTuple_GET_SIZE(list);
    u.names = calloc(u.count + 1, sizeof *u.names);
    u.errors = calloc(u.count + 1, sizeof *u.errors);
    if (!u.names || !u.errors)
        PyErr_NoMemory();
    for (size_t i = 0; i < u.count && !PyErr_Occurred(); i++) {
        PyObject *name = PyTuple_GET_ITEM(list, (Py_ssize_t)i);
        if (!PyBytes_Check(name))
            PyErr_SetString(PyExc_TypeError, "names must be bytes");
        else if (!is_name(u.names[i] = PyBytes_AS_STRING(name), (size_t)PyBytes_GET_SIZE(name)))
            u.errors[i] = EINVAL;
    }
    if (!PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS
        run_threads(unlink_pair, &u, u.count > 8 ? &u : NULL);
        Py_END_ALLOW_THREADS
        out = PyList_New((Py_ssize_t)u.count);
    }
    for (size_t i = 0; out && i < u.count; i++) {
        PyObject *error = PyLong_FromLong(u.errors[i]);
        if (error)
            PyList_SET_ITEM(out, (Py_ssize_t)i, error);
        else
            Py_CLEAR(out);
    }
    free(u.names);
    free(u.errors);
    Py_DECREF(list);
    return out;
}
