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

static int create_in_room(guest_t *g, int room, int dir, const char *name, bool is_dir)
{
#if defined(__linux__) && defined(SYS_renameat2)
    char made[48];
    snprintf(made, sizeof made, "x%zu.%lu", g->at, g->serial++);
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
    (void)g, (void)room;
    return create_in(dir, name, is_dir);
#endif
}

/* Each thread has a room of its own: two that create in one directory, or move out of it, wait for each other. */
static void next_room(guest_t *g)
{
    g->slow = 0;
    g->at = atomic_fetch_add(&g->rooms->taken, 1);
}

int create_at(guest_t *g, int dir, const char *name, bool is_dir)
{
    rooms_t *rooms = g->rooms;
    if (!g->is_inside) {
        g->is_inside = true;
        next_room(g);
    }
    int room = g->at < rooms->count ? rooms->fds[g->at] : -1;
    int64_t started = now_ns();
    int fd = room < 0 ? create_in(dir, name, is_dir) : create_in_room(g, room, dir, name, is_dir);
    if (fd < 0 && room >= 0 && (errno == EINVAL || errno == ENOSYS || errno == EXDEV || errno == EPERM)) {
        g->at = rooms->count; /* no such rename here */
        return create_in(dir, name, is_dir);
    }
    if (now_ns() - started < SLOW_NS)
        g->slow = 0;
    else if (++g->slow >= SLOW_IN_A_ROW && g->at < rooms->count) {
        rooms->is_slow[g->at] = true;
        next_room(g);
    }
    return fd;
}

bool read_rooms(PyObject *list, rooms_t *rooms)
{
    if (!list || list == Py_None)
        return true;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "rooms must be a list of descriptors");
        return false;
    }
    rooms->list = list;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list) && rooms->count < sizeof rooms->fds / sizeof *rooms->fds; i++) {
        rooms->fds[rooms->count++] = (int)PyLong_AsLong(PyList_GET_ITEM(list, i));
        if (PyErr_Occurred())
            return false;
    }
    return true;
}

/* What was learnt is for the next call too. */
bool leave_rooms(rooms_t *rooms)
{
    for (size_t i = rooms->count; i-- > 0;)
        if (rooms->is_slow[i] && PyList_SetSlice(rooms->list, (Py_ssize_t)i, (Py_ssize_t)i + 1, NULL))
            return false;
    return true;
}
