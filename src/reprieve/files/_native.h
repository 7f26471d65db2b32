/* What the parts of the extension share: the packed layout, paths, and each other's functions.
 *
 * docs/design/0001-file-engine.md ("Native functions") says what each function promises; _twin.py promises the
 * same in Python. Three rules hold in all of the parts:
 *   - nothing inside a buffer is trusted: a damaged tree is a ValueError, never a crash;
 *   - no path component is followed through a symlink, and no path leaves the root;
 *   - threads work without the GIL and touch no Python object.
 */
#ifndef REPRIEVE_NATIVE_H
#define REPRIEVE_NATIVE_H
#define PY_SSIZE_T_CLEAN
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packed trees are little endian; big-endian machines use the Python twin"
#endif

#ifdef __APPLE__
#define MTIM st_mtimespec
#define CTIM st_ctimespec
#else
#define MTIM st_mtim
#define CTIM st_ctim
#endif
#ifdef O_PATH
#define O_STEP O_PATH /* needs search permission only, like a path lookup */
#else
#define O_STEP O_RDONLY
#endif
#ifndef AT_NO_AUTOMOUNT
#define AT_NO_AUTOMOUNT 0
#endif
#define O_DIRFD (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)
#define AT_ENTRY (AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)

enum { RACY = 1, CHUNKED = 2, NEEDS = 4, GAP = 8 };
enum { HEADER = 64, PATH_LIMIT = 65535, NAME_LIMIT = 1024, BUF_SIZE = 65536 };

typedef struct __attribute__((packed)) {
    uint8_t magic[8];
    uint64_t count, paths_len, extra_len;
    uint32_t crc, zero;
    uint8_t tag[16];
    uint64_t zero2;
} header_t;

typedef struct __attribute__((packed)) {
    uint32_t path_off;
    uint16_t path_len;
    uint8_t kind, flags;
    uint32_t mode, uid, gid, nlink;
    uint64_t size;
    int64_t mtime_s, ctime_s;
    uint32_t mtime_ns, ctime_ns;
    uint64_t ino, dev, rdev, link;
    uint8_t content[32];
    uint32_t extra_off, extra_len;
} row_t;

_Static_assert(sizeof(header_t) == HEADER && sizeof(row_t) == 128, "the packed layout is part of the design");

typedef struct {
    uint64_t count, paths_len, extra_len;
    row_t *rows;
    const uint8_t *paths, *extras;
} tree_t;

/* ---- paths ---------------------------------------------------------------------------------------------------- */

static inline size_t common_prefix(const uint8_t *a, const uint8_t *b, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t x, y;
        memcpy(&x, a + i, 8);
        memcpy(&y, b + i, 8);
        if (x != y)
            return i + (size_t)__builtin_ctzll(x ^ y) / 8;
    }
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* `/` counts as the smallest byte, so that a directory's subtree follows it at once. */
static inline int path_order(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen, size_t common)
{
    if (common == alen || common == blen)
        return (alen > blen) - (alen < blen);
    int x = a[common] == '/' ? 0 : a[common], y = b[common] == '/' ? 0 : b[common];
    return x != y ? x - y : a[common] - b[common]; /* a NUL, which only a malformed path has, is not equal to `/` */
}

static inline int path_cmp(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
    return path_order(a, alen, b, blen, common_prefix(a, b, alen < blen ? alen : blen));
}

/* No NUL and no empty, `.` or `..` component. `from` is the start of a component. */
static inline bool path_clean(const uint8_t *p, size_t len, size_t from)
{
    if (len == 0)
        return true;
    for (size_t i = from, start = from; i <= len; i++) {
        if (i < len && p[i] == 0)
            return false;
        if (i == len || p[i] == '/') {
            size_t n = i - start;
            if (n == 0 || (n == 1 && p[start] == '.') || (n == 2 && p[start] == '.' && p[start + 1] == '.'))
                return false;
            start = i + 1;
        }
    }
    return true;
}

static inline size_t parent_len(const uint8_t *p, size_t len)
{
    while (len && p[len - 1] != '/')
        len--;
    return len ? len - 1 : 0;
}

static inline bool is_below(const uint8_t *p, size_t len, const uint8_t *dir, size_t dir_len)
{
    return dir_len == 0 ? len > 0 : len > dir_len && p[dir_len] == '/' && !memcmp(p, dir, dir_len);
}

static inline const uint8_t *row_path(const tree_t *t, uint64_t i) { return t->paths + t->rows[i].path_off; }

static inline bool is_name(const char *p, size_t len) { return len && !memchr(p, '/', len) && path_clean((const uint8_t *)p, len, 0); }

/* ---- entries -------------------------------------------------------------------------------------------------- */

static inline uint8_t kind_of(mode_t m)
{
    return S_ISREG(m) ? 'f' : S_ISDIR(m) ? 'd' : S_ISLNK(m) ? 'l' : S_ISFIFO(m) ? 'p' : S_ISSOCK(m) ? 's' : S_ISCHR(m) ? 'c' : 'b';
}

static inline void fill_row(row_t *r, const struct stat *st)
{
    r->kind = kind_of(st->st_mode);
    r->mode = st->st_mode & 07777;
    r->uid = st->st_uid;
    r->gid = st->st_gid;
    r->nlink = (uint32_t)st->st_nlink;
    r->size = r->kind == 'd' ? 0 : (uint64_t)st->st_size; /* a directory's size says nothing that a restore could use */
    r->mtime_s = st->MTIM.tv_sec;
    r->mtime_ns = (uint32_t)st->MTIM.tv_nsec;
    r->ctime_s = st->CTIM.tv_sec;
    r->ctime_ns = (uint32_t)st->CTIM.tv_nsec;
    r->ino = st->st_ino;
    r->dev = (uint64_t)st->st_dev;
    r->rdev = r->kind == 'c' || r->kind == 'b' ? (uint64_t)st->st_rdev : 0;
}

/* ---- descriptors ---------------------------------------------------------------------------------------------- */

static inline void close_quietly(int fd)
{
    int e = errno;
    if (fd >= 0)
        close(fd);
    errno = e;
}

/* The directory of the last path asked for, kept open: paths come sorted, so neighbours share it. */
typedef struct {
    int root, fd;
    const uint8_t *path;
    size_t len;
    char name[NAME_LIMIT + 1];
} parent_t;

int openat_again(int dir, const char *name, int flags, mode_t mode);
int writer_of(int fd); /* 1: somebody has it open or mapped for writing, 0: nobody, -1: it cannot be told */
int open_path(int root, const uint8_t *path, size_t len, int flags, mode_t mode);
int open_parent(parent_t *c, const uint8_t *path, size_t len);
int rename_with(int from, const char *old, int to, const char *new, unsigned flags);

/* ---- where to create (_native_rooms.c) -------------------------------------------------------------------------- */

typedef struct {
    int fds[32]; /* -1: in its own place */
    bool is_slow[32];
    size_t count;
    atomic_size_t taken;
    PyObject *list; /* they came from it; those that are slow are taken out of it */
} rooms_t;

typedef struct { /* one thread's stay */
    rooms_t *rooms;
    bool is_inside;
    size_t at; /* from count on: in its own place, and no room is left */
    int slow;
    unsigned long serial;
} guest_t;

bool read_rooms(PyObject *fds, rooms_t *rooms);
bool leave_rooms(rooms_t *rooms);
int create_at(guest_t *g, int dir, const char *name, bool is_dir);

/* ---- packed trees (_native_tree.c) ------------------------------------------------------------------------------ */

const char *tree_open(tree_t *t, const void *buf, size_t len);
const char *tree_fault(const tree_t *t, bool whole);
const char *row_fault(const tree_t *t, uint64_t i);
PyObject *raise_fault(const char *fault);
bool load(PyObject *obj, Py_buffer *view, tree_t *t, bool deep, bool whole);
int64_t find_between(const tree_t *t, const uint8_t *path, size_t len, uint64_t lo, uint64_t hi);
PyObject *new_tree(tree_t *t, uint64_t count, uint64_t paths_len, uint64_t extra_len, const void *tag);
void seal(PyObject *tree);
int compare_bytes(const void *a, const void *b);

/* ---- hashes (_native_hash.c), memory and threads (_native.c) ------------------------------------------------------ */

void set_up_hashes(void);
void sha256(const uint8_t *data, size_t len, uint8_t out[32]);
uint32_t crc32_of(const uint8_t *p, size_t len);
bool grow(void *block, size_t *cap, size_t need, size_t item);
bool has_other_processor(void);
bool start_thread(pthread_t *thread, void (*work)(void *), void *arg);
void run_threads(void (*work)(void *), void *first, void *second);

/* ---- what Python sees ------------------------------------------------------------------------------------------- */

PyObject *py_scan(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *py_scan_begin(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *py_scan_end(PyObject *module, PyObject *capsule);
PyObject *py_read_rows(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *py_merge(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *py_open_beneath(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *py_find(PyObject *module, PyObject *args);
PyObject *py_orphans(PyObject *module, PyObject *args);
PyObject *py_totals(PyObject *module, PyObject *args);
PyObject *py_rows_with(PyObject *module, PyObject *args);
PyObject *py_has_end(PyObject *module, PyObject *args);
PyObject *py_get(PyObject *module, PyObject *args);
PyObject *py_entries(PyObject *module, PyObject *args);
PyObject *py_pack(PyObject *module, PyObject *args);
PyObject *py_check(PyObject *module, PyObject *obj);
PyObject *py_diff(PyObject *module, PyObject *args);
PyObject *py_sha256(PyObject *module, PyObject *obj);
PyObject *py_cuts(PyObject *module, PyObject *args);
PyObject *py_write_files(PyObject *module, PyObject *args);
PyObject *py_make_dirs(PyObject *module, PyObject *args);
PyObject *py_finish_dirs(PyObject *module, PyObject *args);
PyObject *py_unlink_many(PyObject *module, PyObject *args);
PyObject *py_move_many(PyObject *module, PyObject *args);
PyObject *py_look_at(PyObject *module, PyObject *args);
PyObject *py_with_xattrs(PyObject *module, PyObject *args);
PyObject *py_rename2(PyObject *module, PyObject *args);
PyObject *py_fill_stats(PyObject *module, PyObject *args);
PyObject *py_stat_many(PyObject *module, PyObject *args);
PyObject *py_syncfs(PyObject *module, PyObject *args);
PyObject *py_birth(PyObject *module, PyObject *args);
PyObject *py_writers(PyObject *module, PyObject *args);

#endif
