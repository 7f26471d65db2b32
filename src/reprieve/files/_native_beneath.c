/* Single calls on names beneath a root: open, rename, stat, sync. */
#include "_native.h"

#include <stdatomic.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

int openat_again(int dir, const char *name, int flags, mode_t mode)
{
    int fd;
    do
        fd = openat(dir, name, flags, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

#if defined(__linux__) && !defined(SYS_openat2)
#define SYS_openat2 437
#endif

/* One call that refuses symlinks in all components; -2 where the kernel (or a sandbox) does not offer it. */
static int open_beneath_kernel(int dir, const char *path, int flags, mode_t mode)
{
#ifdef __linux__
    static atomic_bool missing;
    struct {
        uint64_t flags, mode, resolve;
    } how = {(uint64_t)(unsigned)flags, flags & O_CREAT ? mode : 0, 0x04 | 0x08 /* NO_SYMLINKS, BENEATH */};
    if (missing)
        return -2;
    int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (fd >= 0)
        return fd;
    if (errno == ENOSYS)
        missing = true;
    /* EPERM: a seccomp filter may answer so. EINVAL: a flag that only plain openat lets pass. EXDEV: a directory was
       moved out of the root during the walk, which is no matter of devices; step by step it is seen for what it is. */
    return errno == ENOSYS || errno == EPERM || errno == EINVAL || errno == EAGAIN || errno == EINTR || errno == EXDEV
               ? -2
               : -1;
#else
    (void)dir, (void)path, (void)flags, (void)mode;
    return -2;
#endif
}

int open_path(int root, const uint8_t *path, size_t len, int flags, mode_t mode)
{
    char part[4096];
    int dir = root, fd;
    bool by_kernel = true;
    size_t pos = 0;
    flags |= O_NOFOLLOW | O_CLOEXEC;
    if (len == 0)
        return openat_again(root, ".", flags, mode);
    if (!path_clean(path, len, 0)) {
        errno = EINVAL;
        return -1;
    }
    for (;;) {
        size_t end = len;
        if (!by_kernel || end - pos >= sizeof part) { /* one component, or as many as fit into a call */
            const uint8_t *slash = memchr(path + pos, '/', len - pos);
            end = slash ? (size_t)(slash - path) : len;
            for (size_t e = pos + sizeof part - 1; by_kernel && e > end && e < len; e--)
                if (path[e] == '/')
                    end = e;
        }
        if (end - pos >= sizeof part) {
            errno = ENAMETOOLONG;
            fd = -1;
            break;
        }
        memcpy(part, path + pos, end - pos);
        part[end - pos] = 0;
        int how = end == len ? flags : O_STEP | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        fd = -2;
        if (by_kernel)
            fd = open_beneath_kernel(dir, part, how, mode);
        if (fd == -2 && by_kernel) {
            by_kernel = false;
            continue;
        }
        if (fd == -2)
            fd = openat_again(dir, part, how, mode);
        if (fd < 0 && errno == ENOTDIR) { /* a refused link is ELOOP, whoever refused it */
            struct stat st;
            bool is_link = !strchr(part, '/') && !fstatat(dir, part, &st, AT_ENTRY) && S_ISLNK(st.st_mode);
            errno = is_link ? ELOOP : ENOTDIR;
        }
        if (fd < 0 || end == len)
            break;
        if (dir != root)
            close(dir);
        dir = fd;
        pos = end + 1;
    }
    if (dir != root)
        close_quietly(dir);
    return fd;
}

int open_parent(parent_t *c, const uint8_t *path, size_t len)
{
    size_t plen = parent_len(path, len), start = plen ? plen + 1 : 0;
    if (len - start > NAME_LIMIT) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (c->fd < 0 || c->len != plen || memcmp(c->path, path, plen)) {
        if (c->fd >= 0)
            close(c->fd);
        c->fd = open_path(c->root, path, plen, O_STEP | O_DIRECTORY, 0);
        c->path = path;
        c->len = plen;
    }
    memcpy(c->name, path + start, len - start);
    c->name[len - start] = 0;
    return c->fd;
}

/* ---- what Python sees ------------------------------------------------------------------------------------------- */

static PyObject *os_error(int error, PyObject *path)
{
    errno = error;
    return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
}

PyObject *py_rename2(PyObject *module, PyObject *args)
{
    int from, to, result, error;
    unsigned flags;
    PyObject *old, *new;
    (void)module;
    if (!PyArg_ParseTuple(args, "iSiSI", &from, &old, &to, &new, &flags))
        return NULL;
    const char *a = PyBytes_AS_STRING(old), *b = PyBytes_AS_STRING(new);
    if (flags > 2 || !is_name(a, (size_t)PyBytes_GET_SIZE(old)) || !is_name(b, (size_t)PyBytes_GET_SIZE(new)))
        return os_error(EINVAL, old);
    Py_BEGIN_ALLOW_THREADS
    result = rename_with(from, a, to, b, flags);
    error = errno == ENOSYS || errno == ENOTSUP ? EINVAL : errno;
    Py_END_ALLOW_THREADS
    if (result) {
        errno = error;
        return PyErr_SetFromErrnoWithFilenameObjects(PyExc_OSError, old, new);
    }
    Py_RETURN_NONE;
}

PyObject *py_open_beneath(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"root_fd", "path", "flags", "mode", NULL};
    int root, flags, fd, error;
    unsigned mode = 0;
    PyObject *path;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iSi|I", names, &root, &path, &flags, &mode))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    fd = open_path(root, (const uint8_t *)PyBytes_AS_STRING(path), (size_t)PyBytes_GET_SIZE(path), flags, mode & 07777);
    error = errno;
    Py_END_ALLOW_THREADS
    return fd < 0 ? os_error(error, path) : PyLong_FromLong(fd);
}

PyObject *py_stat_many(PyObject *module, PyObject *args)
{
    parent_t dir = {.fd = -1};
    PyObject *paths;
    (void)module;
    if (!PyArg_ParseTuple(args, "iO", &dir.root, &paths))
        return NULL;
    PyObject *list = PySequence_Tuple(paths), *out = NULL;
    if (!list)
        return NULL;
    size_t n = (size_t)PyTuple_GET_SIZE(list);
    struct stat *stats = calloc(n + 1, sizeof *stats);
    int *errors = calloc(n + 1, sizeof *errors);
    if (!stats || !errors)
        PyErr_NoMemory();
    for (size_t i = 0; i < n && !PyErr_Occurred(); i++)
        if (!PyBytes_Check(PyTuple_GET_ITEM(list, i)))
            PyErr_SetString(PyExc_TypeError, "paths must be bytes");
    if (!PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i < n; i++) {
            PyObject *path = PyTuple_GET_ITEM(list, i);
            const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(path);
            size_t len = (size_t)PyBytes_GET_SIZE(path);
            int bad = 0;
            if (!path_clean(p, len, 0))
                errors[i] = EINVAL;
            else if (len == 0)
                bad = fstat(dir.root, &stats[i]);
            else if (open_parent(&dir, p, len) < 0)
                bad = -1;
            else
                bad = fstatat(dir.fd, dir.name, &stats[i], AT_ENTRY);
            if (bad)
                errors[i] = errno;
        }
        close_quietly(dir.fd);
        Py_END_ALLOW_THREADS
        out = PyList_New((Py_ssize_t)n);
    }
    for (size_t i = 0; out && i < n; i++) {
        const struct stat *st = &stats[i];
        PyObject *item = NULL;
        if (errors[i] == ENOENT || errors[i] == ENOTDIR || errors[i] == ELOOP)
            item = Py_NewRef(Py_None);
        else if (errors[i]) /* "nothing there" must not be said of what cannot be seen */
            os_error(errors[i], PyTuple_GET_ITEM(list, i));
        else
            item = Py_BuildValue("(IIIKKKKLLlLl)", (unsigned)st->st_mode, (unsigned)st->st_uid, (unsigned)st->st_gid,
                                 (unsigned long long)st->st_nlink, (unsigned long long)st->st_ino,
                                 (unsigned long long)st->st_dev, (unsigned long long)st->st_rdev,
                                 (long long)st->st_size, (long long)st->MTIM.tv_sec, (long)st->MTIM.tv_nsec,
                                 (long long)st->CTIM.tv_sec, (long)st->CTIM.tv_nsec);
        if (item)
            PyList_SET_ITEM(out, (Py_ssize_t)i, item);
        else
            Py_CLEAR(out);
    }
    free(stats);
    free(errors);
    Py_DECREF(list);
    return out;
}

PyObject *py_fill_stats(PyObject *module, PyObject *args)
{
    parent_t dir = {.fd = -1};
    Py_buffer view;
    tree_t t;
    (void)module;
    if (!PyArg_ParseTuple(args, "iw*", &dir.root, &view))
        return NULL;
    const char *fault = tree_open(&t, view.buf, (size_t)view.len);
    int error = 0;
    uint64_t at = 0;
    PyObject *out = fault ? raise_fault(fault) : PyList_New(0);
    for (; out && at < t.count && !error; at++) {
        row_t *r = t.rows + at;
        struct stat st;
        const uint8_t *path = row_path(&t, at);
        if ((fault = row_fault(&t, at)) || !path_clean(path, r->path_len, 0)) {
            raise_fault(fault ? fault : "packed tree: a path is malformed");
            Py_CLEAR(out);
            break;
        }
        int bad = r->path_len == 0                            ? fstat(dir.root, &st)
                  : open_parent(&dir, path, r->path_len) < 0 ? -1
                                                              : fstatat(dir.fd, dir.name, &st, AT_ENTRY);
        if (bad && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) {
            PyObject *row = PyLong_FromUnsignedLongLong(at);
            if (!row || PyList_Append(out, row) < 0)
                Py_CLEAR(out);
            Py_XDECREF(row);
        } else if (bad) {
            error = errno; /* "nothing there" must not be said of what cannot be seen */
        } else {
            r->nlink = (uint32_t)st.st_nlink;
            r->ino = st.st_ino;
            r->dev = (uint64_t)st.st_dev;
            r->ctime_s = st.CTIM.tv_sec;
            r->ctime_ns = (uint32_t)st.CTIM.tv_nsec;
            r->flags |= RACY;
        }
    }
    close_quietly(dir.fd);
    if (error) {
        PyObject *path = PyBytes_FromStringAndSize((const char *)row_path(&t, at - 1), t.rows[at - 1].path_len);
        Py_CLEAR(out);
        if (path)
            os_error(error, path);
        Py_XDECREF(path);
    }
    PyBuffer_Release(&view);
    return out;
}

PyObject *py_syncfs(PyObject *module, PyObject *args)
{
    int fd, result;
    (void)module;
    if (!PyArg_ParseTuple(args, "i", &fd))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
#ifdef __linux__
    result = syncfs(fd);
#else
    result = fcntl(fd, F_GETFD) < 0 ? -1 : 0;
    sync();
#endif
    Py_END_ALLOW_THREADS
    if (result)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

PyObject *py_birth(PyObject *module, PyObject *args)
{
    int fd;
    (void)module;
    if (!PyArg_ParseTuple(args, "i", &fd))
        return NULL;
    long long sec = 0, ns = 0;
#ifdef __APPLE__
    struct stat st;
    if (fstat(fd, &st))
        return PyErr_SetFromErrno(PyExc_OSError);
    sec = st.st_birthtimespec.tv_sec;
    ns = st.st_birthtimespec.tv_nsec;
#elif defined(STATX_BTIME)
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &st)) {
        if (errno != ENOSYS && errno != EPERM)
            return PyErr_SetFromErrno(PyExc_OSError);
    } else if (st.stx_mask & STATX_BTIME) {
        sec = st.stx_btime.tv_sec;
        ns = st.stx_btime.tv_nsec;
    }
#endif
    return PyLong_FromLongLong(sec * 1000000000 + ns);
}
