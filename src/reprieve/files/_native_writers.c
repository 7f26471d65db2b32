/* Who has files open for writing: asked by a lease that is held for an instant. */
#include "_native.h"

#include <signal.h>
#include <stdio.h>

/* A descriptor to read; -1: nothing is there that could be written, -2: it cannot be told. A pipe or a device is never
   opened, so the name comes first and what it stands for second. */
static int open_regular(parent_t *dir, const uint8_t *path, size_t len)
{
#if defined(__linux__) && defined(O_PATH)
    char at[40];
    struct stat st;
    int name = open_parent(dir, path, len) < 0 ? -1 : openat_again(dir->fd, dir->name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    if (name < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? -1 : -2;
    int fd = fstat(name, &st) ? -2 : S_ISREG(st.st_mode) ? 0 : -1;
    if (fd == 0) {
        snprintf(at, sizeof at, "/proc/self/fd/%d", name);
        fd = openat_again(AT_FDCWD, at, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
        if (fd < 0)
            fd = -2;
    }
    close(name);
    return fd;
#else
    (void)dir, (void)path, (void)len;
    return -2;
#endif
}

int writer_of(int fd)
{
#ifdef F_SETLEASE
    /* whoever opens it in this instant waits, and we are told by a signal: one that does nothing by default */
    if (!fcntl(fd, F_SETSIG, SIGURG) && !fcntl(fd, F_SETLEASE, F_RDLCK))
        return fcntl(fd, F_SETLEASE, F_UNLCK) ? -1 : 0;
    return errno == EAGAIN ? 1 : -1;
#else
    (void)fd;
    return -1;
#endif
}

PyObject *py_writers(PyObject *module, PyObject *args)
{
    parent_t dir = {.fd = -1};
    PyObject *paths, *between;
    (void)module;
    if (!PyArg_ParseTuple(args, "iOO", &dir.root, &paths, &between))
        return NULL;
    PyObject *list = PySequence_Tuple(paths), *out = NULL;
    if (!list)
        return NULL;
    size_t n = (size_t)PyTuple_GET_SIZE(list);
    int *fds = malloc((n + 1) * sizeof *fds);
    if (!fds)
        PyErr_NoMemory();
    for (size_t i = 0; i < n && !PyErr_Occurred(); i++) {
        PyObject *path = PyTuple_GET_ITEM(list, i);
        if (!PyBytes_Check(path))
            PyErr_SetString(PyExc_TypeError, "paths must be bytes");
        else if (!PyBytes_GET_SIZE(path) ||
                 !path_clean((const uint8_t *)PyBytes_AS_STRING(path), (size_t)PyBytes_GET_SIZE(path), 0)) {
            errno = EINVAL;
            PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
        }
    }
    if (!PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i < n; i++) {
            PyObject *path = PyTuple_GET_ITEM(list, i);
            fds[i] = open_regular(&dir, (const uint8_t *)PyBytes_AS_STRING(path), (size_t)PyBytes_GET_SIZE(path));
        }
        close_quietly(dir.fd);
        Py_END_ALLOW_THREADS
        PyObject *result = PyObject_CallNoArgs(between);
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i < n; i++)
            if (fds[i] >= 0) {
                bool is_written = writer_of(fds[i]) != 0;
                close(fds[i]);
                fds[i] = is_written ? -2 : -1;
            }
        Py_END_ALLOW_THREADS
        out = result ? PyList_New((Py_ssize_t)n) : NULL;
        Py_XDECREF(result);
        for (size_t i = 0; out && i < n; i++)
            PyList_SET_ITEM(out, (Py_ssize_t)i, PyBool_FromLong(fds[i] == -2));
    }
    free(fds);
    Py_DECREF(list);
    return out;
}
