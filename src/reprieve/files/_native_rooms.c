/* Creating many files and directories where the file system does that fast.
 *
 * ext4 without a journal does not give a deleted file's inode away for a minute, and looks at each of them whenever
 * something is created in the same part of the disk: up to a millisecond for each file of a tree that was just deleted.
 * A room is a directory in another part. Where creating turns out slow, things are created in a room and moved from there.
 */
#include "_native.h"

#include <stdio.h>
#include <time.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

enum { SLOW_NS = 100000, SLOW_IN_A_ROW = 4 };

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* -1 with errno, else a descriptor (0 for a directory). */
static int create_in(int dir, const char *name, bool is_dir)
{
    if (is_dir)
        return mkdirat(dir, name, 0700);
    /* Mode 0 until the content is whole: nobody can open a half-written file, whatever the umask. */
    return openat_again(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0);
}

static int create_in_room(guest_t *g, int dir, const char *name, bool is_dir)
{
#if defined(__linux__) && defined(SYS_renameat2)
    char made[32];
    int room = g->rooms->fds[g->at - 1];
    snprintf(made, sizeof made, "x%lu", (unsigned long)atomic_fetch_add(&g->rooms->serial, 1));
    int fd = create_in(room, made, is_dir);
    if (fd < 0 || !syscall(SYS_renameat2, room, made, dir, name, 1 /* NOREPLACE */))
        return fd;
    int error = errno;
    unlinkat(room, made, is_dir ? AT_REMOVEDIR : 0);
    if (!is_dir)
        close(fd);
    errno = error;
    return -1;
#else
    return create_in(dir, name, is_dir);
#endif
}

int create_at(guest_t *g, int dir, const char *name, bool is_dir)
{
    int64_t started = now_ns();
    int fd = g->at ? create_in_room(g, dir, name, is_dir) : create_in(dir, name, is_dir);
    if (fd < 0 && g->at && (errno == EINVAL || errno == ENOSYS || errno == EXDEV || errno == EPERM)) {
        g->at = 0; /* no such rename here */
        g->is_done = true;
        return create_in(dir, name, is_dir);
    }
    if (now_ns() - started < SLOW_NS)
        g->slow = 0;
    else if (++g->slow >= SLOW_IN_A_ROW && !g->is_done) {
        g->slow = 0;
        size_t seen = g->at, next = atomic_load(&g->rooms->current);
        if (next <= seen) { /* nobody else has moved on yet */
            next = seen + 1;
            atomic_store(&g->rooms->current, next);
        }
        g->is_done = next > g->rooms->count;
        g->at = g->is_done ? 0 : next;
    }
    return fd;
}

bool read_rooms(PyObject *fds, rooms_t *rooms)
{
    if (!fds)
        return true;
    PyObject *list = PySequence_Fast(fds, "rooms must be descriptors");
    if (!list)
        return false;
    size_t n = (size_t)PySequence_Fast_GET_SIZE(list);
    for (size_t i = 0; i < n && i < sizeof rooms->fds / sizeof *rooms->fds && !PyErr_Occurred(); i++)
        rooms->fds[rooms->count++] = (int)PyLong_AsLong(PySequence_Fast_GET_ITEM(list, (Py_ssize_t)i));
    Py_DECREF(list);
    return !PyErr_Occurred();
}
