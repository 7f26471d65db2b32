/* Content of many files at once: read and hashed for a checkpoint, written for a restore. */
#include "_native.h"

#include <stdatomic.h>
#include <sys/xattr.h>
#include <time.h>

/* ---- read_rows ------------------------------------------------------------------------------------------------ */

typedef struct {
    uint64_t row;
    size_t off, room; /* its place in the common buffer */
    uint8_t *own;     /* or a block of its own, if the file has grown */
    size_t own_room, len;
    int error;
    bool is_read, has_xattrs;
} part_t;

typedef struct {
    int root;
    const tree_t *tree;
    uint8_t *data;
    part_t *parts;
    size_t count;
    uint64_t max_file;
    atomic_size_t next;
} read_t;

static bool has_xattrs(int fd)
{
#ifdef __APPLE__
    return flistxattr(fd, NULL, 0, 0) > 0;
#else
    return flistxattr(fd, NULL, 0) > 0;
#endif
}

static bool same_state(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->MTIM.tv_sec == b->MTIM.tv_sec && a->MTIM.tv_nsec == b->MTIM.tv_nsec &&
           a->CTIM.tv_sec == b->CTIM.tv_sec && a->CTIM.tv_nsec == b->CTIM.tv_nsec;
}

/* Nanoseconds until a file of this ctime and size is old enough for its reader to have seen whole writes; 0: it is. */
static int64_t wait_ns(const struct stat *st, const struct timespec *now)
{
    int64_t span = 2000000 + (int64_t)st->st_size * 5; /* 2 ms + size at 200 MB/s */
    int64_t secs = (int64_t)now->tv_sec - st->CTIM.tv_sec;
    if (secs > 1 + span / 1000000000)
        return 0;
    if (secs < -1)
        return span; /* the clock has been set back: age unknown */
    int64_t age = secs * 1000000000 + now->tv_nsec - st->CTIM.tv_nsec;
    return age >= span ? 0 : span;
}

static void read_one(read_t *r, part_t *p, int dir, const char *name)
{
    row_t *row = r->tree->rows + p->row;
    struct stat before, after, last = {0};
    struct timespec now;
    uint8_t digest[32], last_digest[32] = {0};
    bool waited = false;
    int fd = openat_again(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0);
    p->error = 0;
    if (fd < 0) {
        p->error = errno == ELOOP || errno == ENXIO ? ESTALE : errno == ENOTDIR ? ENOENT : errno;
        return;
    }
    /* A file that is mapped may be written without its times showing it, once they have shown the first time. */
    bool is_written = writer_of(fd) > 0;
    for (int tries = 0; tries < 3;) {
        if (fstat(fd, &before)) {
            p->error = errno;
            break;
        }
        p->error = ESTALE;
        if (!S_ISREG(before.st_mode))
            break;
        size_t room = (size_t)before.st_size + 1, got = 0; /* one more, so that a full read is seen to be the end */
        uint8_t *buf = r->data + p->off;
        p->error = 0;
        if ((uint64_t)before.st_size > r->max_file) {
            fill_row(row, &before);
            row->flags |= RACY; /* it grew since the scan */
            break;
        }
        if (room > p->room) {
            p->error = ENOMEM;
            if (!grow(&p->own, &p->own_room, room, 1))
                break;
            buf = p->own;
        }
        clock_gettime(CLOCK_REALTIME, &now);
        p->error = 0;
        while (got < room) {
            ssize_t n = pread(fd, buf + got, room - got, (off_t)got);
            if (n > 0 && (got += (size_t)n) == (size_t)before.st_size)
                break; /* asked for one more and did not get it; whether that is still the end, `after` tells */
            else if (n == 0 || (n < 0 && errno != EINTR)) {
                p->error = n ? errno : 0;
                break;
            }
        }
        if (p->error || fstat(fd, &after)) {
            p->error = p->error ? p->error : errno;
            break;
        }
        p->error = EAGAIN;
        if (!same_state(&before, &after) || got != (size_t)after.st_size) {
            tries++;
            continue;
        }
        sha256(buf, got, digest);
        int64_t ns = wait_ns(&after, &now);
        bool agrees = waited && same_state(&last, &after) && !memcmp(digest, last_digest, 32);
        if (ns && !agrees) { /* a writer may be at work without the times showing it yet */
            struct timespec pause = {ns / 1000000000, ns % 1000000000};
            if (waited)
                tries++;
            waited = true;
            last = after;
            memcpy(last_digest, digest, 32);
            nanosleep(&pause, NULL);
            continue;
        }
        if (is_written || row->mtime_s != after.MTIM.tv_sec || row->mtime_ns != (uint32_t)after.MTIM.tv_nsec ||
            row->ctime_s != after.CTIM.tv_sec || row->ctime_ns != (uint32_t)after.CTIM.tv_nsec)
            row->flags |= RACY; /* or written since the scan, so younger than its floor */
        fill_row(row, &after);
        memcpy(row->content, digest, 32);
        row->flags &= (uint8_t)~(NEEDS | CHUNKED);
        p->has_xattrs = has_xattrs(fd);
        p->len = got;
        p->is_read = true;
        p->error = 0;
        if (buf != p->own) {
            free(p->own);
            p->own = NULL;
        }
        break;
    }
    close(fd);
}

static void read_worker(void *arg)
{
    read_t *r = arg;
    parent_t dir = {.root = r->root, .fd = -1};
    size_t from;
    while ((from = atomic_fetch_add(&r->next, 8)) < r->count) /* eight: neighbours share their directory */
        for (size_t i = from; i < from + 8 && i < r->count; i++) {
            part_t *p = &r->parts[i];
            const row_t *row = r->tree->rows + p->row;
            if (open_parent(&dir, row_path(r->tree, p->row), row->path_len) < 0)
                p->error = errno == ENOTDIR || errno == ELOOP ? ENOENT : errno;
            else
                read_one(r, p, dir.fd, dir.name);
        }
    close_quietly(dir.fd);
}

static PyObject *read_answer(read_t *r, PyObject **data, size_t used, Py_ssize_t next)
{
    PyObject *parts = PyList_New(0), *problems = PyList_New(0), *answer = NULL;
    size_t grown = used;
    for (size_t i = 0; i < r->count; i++)
        if (r->parts[i].is_read && r->parts[i].own)
            grown += r->parts[i].len;
    if (!parts || !problems || (grown > used && _PyBytes_Resize(data, (Py_ssize_t)grown) < 0))
        goto done;
    for (size_t i = 0; i < r->count; i++) {
        part_t *p = &r->parts[i];
        PyObject *list = parts, *item;
        if (p->is_read && p->own) {
            memcpy(PyBytes_AS_STRING(*data) + used, p->own, p->len);
            p->off = used;
            used += p->len;
        }
        if (p->is_read) {
            item = Py_BuildValue("KnnOy#", (unsigned long long)p->row, (Py_ssize_t)p->off, (Py_ssize_t)p->len,
                                 p->has_xattrs ? Py_True : Py_False, r->tree->rows[p->row].content, (Py_ssize_t)32);
        } else if (p->error) {
            list = problems;
            item = Py_BuildValue("Ki", (unsigned long long)p->row, p->error);
        } else {
            continue; /* too large by now: left for the caller */
        }
        if (!item || PyList_Append(list, item) < 0) {
            Py_XDECREF(item);
            goto done;
        }
        Py_DECREF(item);
    }
    answer = Py_BuildValue("OOnO", *data, parts, next, problems);
done:
    Py_XDECREF(parts);
    Py_XDECREF(problems);
    return answer;
}

PyObject *py_read_rows(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"root_fd", "rows", "start", "max_bytes", "max_file", NULL};
    Py_buffer view;
    tree_t tree;
    Py_ssize_t start, max_bytes, max_file, next = -1;
    read_t r = {.tree = &tree};
    size_t cap = 0, used = 0;
    PyObject *data = NULL, *answer = NULL;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iw*nnn", names, &r.root, &view, &start, &max_bytes, &max_file))
        return NULL;
    const char *fault = tree_open(&tree, view.buf, (size_t)view.len);
    if (!fault && (start < 0 || (uint64_t)start > tree.count || max_file < 0))
        fault = "no such row";
    for (uint64_t i = (uint64_t)start; !fault && i < tree.count; i++) {
        const row_t *row = tree.rows + i;
        if (row->kind != 'f' || !(row->flags & NEEDS) || row->size > (uint64_t)max_file)
            continue;
        if ((fault = row_fault(&tree, i)))
            break;
        if (!path_clean(row_path(&tree, i), row->path_len, 0)) {
            fault = "packed tree: a path is malformed";
            break;
        }
        if (r.count && used + row->size > (size_t)max_bytes) {
            next = (Py_ssize_t)i;
            break;
        }
        if (!grow(&r.parts, &cap, r.count + 1, sizeof *r.parts)) {
            fault = "";
            break;
        }
        r.parts[r.count++] = (part_t){.row = i, .off = used, .room = (size_t)row->size + 1};
        used += (size_t)row->size + 1;
    }
    if (fault)
        raise_fault(fault);
    else if ((data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)used))) {
        r.max_file = (uint64_t)max_file;
        r.data = (uint8_t *)PyBytes_AS_STRING(data);
        Py_BEGIN_ALLOW_THREADS
        run_threads(read_worker, &r, r.count > 16 || used > 1 << 20 ? &r : NULL);
        Py_END_ALLOW_THREADS
        answer = read_answer(&r, &data, used, next);
    }
    for (size_t i = 0; i < r.count; i++)
        free(r.parts[i].own);
    free(r.parts);
    Py_XDECREF(data);
    PyBuffer_Release(&view);
    return answer;
}

/* ---- write_files ---------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *path;
    size_t path_len;
    Py_buffer *buffers;
    Py_ssize_t count;
    mode_t mode;
    uid_t uid;
    gid_t gid;
    struct timespec mtime;
    int error;
} item_t;

typedef struct {
    int root;
    item_t *items;
    size_t count;
    atomic_size_t next;
    rooms_t rooms;
} write_t;

enum { FEW = 256 }; /* small files in a directory or two: a second thread would only wait for the first */

static int write_all(int fd, const uint8_t *p, size_t left)
{
    while (left) {
        ssize_t n = write(fd, p, left < 1 << 30 ? left : 1 << 30);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            p += n;
            left -= (size_t)n;
        }
    }
    return 0;
}

static int write_one(guest_t *guest, int dir, const char *name, const item_t *it)
{
    int fd = create_at(guest, dir, name, false), error = 0;
    if (fd < 0)
        return errno;
    for (Py_ssize_t i = 0; i < it->count && !error; i++)
        if (write_all(fd, it->buffers[i].buf, (size_t)it->buffers[i].len))
            error = errno;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, it->mtime};
    struct stat st;
    if (!error && fstat(fd, &st))
        error = errno;
    bool is_owned = error || ((it->uid == (uid_t)-1 || it->uid == st.st_uid) && (it->gid == (gid_t)-1 || it->gid == st.st_gid));
    /* fchown before fchmod: it takes setuid away. Times last: everything before moves them. */
    if (!is_owned && fchown(fd, it->uid, it->gid))
        error = errno;
    if (!error && (fchmod(fd, it->mode) || futimens(fd, times)))
        error = errno;
    if (close(fd) && !error)
        error = errno;
    if (error)
        unlinkat(dir, name, 0);
    return error;
}

/* Whether the item is in the directory of the one before it. Whoever has that one takes it along: two threads that
 * create files in one directory only wait for each other. A directory of thousands is shared all the same. */
static bool same_dir(const write_t *w, size_t i)
{
    if (i == 0 || i >= w->count || i % 64 == 0)
        return false;
    const item_t *a = &w->items[i - 1], *b = &w->items[i];
    size_t n = parent_len(b->path, b->path_len);
    return n && n == parent_len(a->path, a->path_len) && !memcmp(a->path, b->path, n);
}

static void write_worker(void *arg)
{
    write_t *w = arg;
    parent_t dir = {.root = w->root, .fd = -1};
    guest_t guest = {.rooms = &w->rooms};
    size_t from;
    while ((from = atomic_fetch_add(&w->next, 8)) < w->count) {
        size_t to = from + 8;
        while (from < to && same_dir(w, from))
            from++;
        while (to > from && same_dir(w, to))
            to++;
        for (size_t i = from; i < to && i < w->count; i++) {
            item_t *it = &w->items[i];
            if (!it->error)
                it->error = open_parent(&dir, it->path, it->path_len) < 0 ? errno : write_one(&guest, dir.fd, dir.name, it);
        }
    }
    close_quietly(dir.fd);
}

static bool read_item(PyObject *tuple, item_t *it)
{
    const char *path;
    Py_ssize_t path_len;
    PyObject *buffers;
    unsigned mode;
    long long uid, gid, sec;
    long ns;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "write_files takes tuples");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "y#OILLLl", &path, &path_len, &buffers, &mode, &uid, &gid, &sec, &ns))
        return false;
    it->path = (const uint8_t *)path;
    it->path_len = (size_t)path_len;
    it->mode = mode & 07777;
    it->uid = (uid_t)uid;
    it->gid = (gid_t)gid;
    it->mtime = (struct timespec){.tv_sec = (time_t)sec, .tv_nsec = ns};
    if (!path_len || !path_clean(it->path, it->path_len, 0) || ns < 0 || ns > 999999999 || uid < -1 || uid > UINT32_MAX || gid < -1 ||
        gid > UINT32_MAX)
        it->error = EINVAL;
    PyObject *list = PySequence_Fast(buffers, "buffers must be a sequence");
    if (!list)
        return false;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
    it->buffers = calloc((size_t)n + 1, sizeof *it->buffers);
    if (!it->buffers)
        PyErr_NoMemory();
    for (; it->buffers && it->count < n; it->count++)
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(list, it->count), &it->buffers[it->count], PyBUF_SIMPLE) < 0)
            break;
    Py_DECREF(list);
    return it->buffers && it->count == n;
}

PyObject *py_write_files(PyObject *module, PyObject *args)
{
    write_t w = {0};
    PyObject *items, *rooms = NULL, *out = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "iO|O", &w.root, &items, &rooms) || !read_rooms(rooms, &w.rooms))
        return NULL;
    PyObject *list = PySequence_Tuple(items); /* a copy: paths must stay alive while the GIL is released */
    if (!list)
        return NULL;
    size_t n = (size_t)PyTuple_GET_SIZE(list), total = 0;
    w.items = calloc(n + 1, sizeof *w.items);
    if (!w.items)
        PyErr_NoMemory();
    while (w.items && w.count < n && read_item(PyTuple_GET_ITEM(list, w.count), &w.items[w.count])) {
        for (Py_ssize_t i = 0; i < w.items[w.count].count; i++)
            total += (size_t)w.items[w.count].buffers[i].len;
        w.count++;
    }
    if (w.items && w.count == n) {
        Py_BEGIN_ALLOW_THREADS
        run_threads(write_worker, &w, n > FEW || (n > 1 && total > 1 << 20) ? &w : NULL);
        Py_END_ALLOW_THREADS
        out = leave_rooms(&w.rooms) ? PyList_New((Py_ssize_t)n) : NULL;
        for (size_t i = 0; out && i < n; i++) {
            PyObject *error = PyLong_FromLong(w.items[i].error);
            if (error)
                PyList_SET_ITEM(out, (Py_ssize_t)i, error);
            else
                Py_CLEAR(out);
        }
    }
    for (size_t i = 0; w.items && i < n; i++) {
        for (Py_ssize_t k = 0; k < w.items[i].count; k++)
            PyBuffer_Release(&w.items[i].buffers[k]);
        free(w.items[i].buffers);
    }
    free(w.items);
    Py_DECREF(list);
    return out;
}
