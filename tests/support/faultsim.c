/* Fault injection by LD_PRELOAD: one counter over the libc calls of a process, a fault at the N-th of them.
 *
 * The fork server (forkserver.py) arms it in a child by fs_arm. Calls are counted by class, so that a sweep can
 * ask for "every call that changes a disk", "every call that takes new space" or "every read below these roots".
 * What was seen is written to a shared page that outlives the child: a crash test can prove that its crash happened.
 *
 *     KILL        SIGKILL instead of the call          ERRNO       the call fails once
 *     KILL_AFTER  SIGKILL when the call has returned   ERRNO_FROM  it and all later ones fail
 *     SHORT       a write or read does half            STOP        SIGSTOP before the call
 *     SIGNAL      the signal `err`, then the call
 *
 * Raw system calls through syscall(3) are seen as well; those of statically linked programs are not. Locks (flock,
 * fcntl) and writes to descriptors 0 to 2 are not counted.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { KILL, KILL_AFTER, ERRNO, ERRNO_FROM, SHORT, STOP, SIGNAL };
enum { WRITE = 1, CREATE = 2, MOVE = 4, REMOVE = 8, ATTR = 16, SYNC = 32, READ = 64, LOOK = 128, NET = 256 };
enum { GO, FAIL, HALF, DIE_AFTER };

enum { RECORDS = 8192, TEXT = 120 };
struct shared {
    atomic_long seen, fired;
    char call[24], path[256];
    struct { char call[24]; char path[TEXT]; } log[RECORDS];
};

static struct shared *page;
static long at = -1;
static int mode, err, mask, recording;
static pid_t owner;
static char roots[4][256];
static int n_roots;
static atomic_int armed;

static long (*real_syscall)(long, ...);
__attribute__((constructor)) static void init(void) { real_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"); }

size_t fs_page_size(void) { return sizeof(struct shared); }
void fs_share(void *where) { page = where; }
void fs_root(const char *path) { if (n_roots < 4) snprintf(roots[n_roots++], sizeof roots[0], "%s", path); }
void fs_disarm(void) { armed = 0; }
long fs_seen(void) { return page ? page->seen : -1; }
void fs_arm(long n, int m, int e, int classes, int record) {
    at = n; mode = m; err = e; mask = classes; recording = record; owner = getpid();
    page->seen = page->fired = 0; page->call[0] = page->path[0] = 0;
    armed = 1;
}

static void die(void) { for (;;) real_syscall(SYS_kill, getpid(), SIGKILL); }

/* "directory of dirfd" + path, or the path of fd when path is NULL */
static void locate(int fd, const char *path, char *out, size_t n) {
    out[0] = 0;
    if (path && path[0] == '/') { snprintf(out, n, "%s", path); return; }
    char link[40]; ssize_t l;
    if (fd == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd"); else snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    l = real_syscall(SYS_readlinkat, AT_FDCWD, link, out, n - 1);
    if (l < 0) l = 0;
    out[l] = 0;
    if (path && path[0]) snprintf(out + l, n - l, "/%s", path);
}

static int below_roots(const char *p) {
    for (int i = 0; i < n_roots; i++) { size_t l = strlen(roots[i]); if (!strncmp(p, roots[i], l) && (!p[l] || p[l] == '/')) return 1; }
    return 0;
}

static int hit(const char *call, int class, int fd, const char *path) {
    if (!armed || !(class & mask) || getpid() != owner) return GO;
    int saved = errno;
    char where[512]; where[0] = 0;
    if (class & (READ | LOOK)) { locate(fd, path, where, sizeof where); if (!below_roots(where)) { errno = saved; return GO; } }
    long k = ++page->seen;
    int now = at >= 0 && (mode == ERRNO_FROM ? k >= at : k == at);
    if (recording || now) { if (!where[0]) locate(fd, path, where, sizeof where); }
    if (recording && k <= RECORDS) {
        size_t l = strlen(where), from = l >= TEXT ? l - TEXT + 1 : 0;
        snprintf(page->log[k - 1].call, sizeof page->log[0].call, "%s", call);
        snprintf(page->log[k - 1].path, TEXT, "%s", where + from);
    }
    errno = saved;
    if (!now) return GO;
    if (!page->fired) { snprintf(page->call, sizeof page->call, "%s", call); snprintf(page->path, sizeof page->path, "%s", where); }
    page->fired++;
    switch (mode) {
    case KILL: die(); break;
    case KILL_AFTER: return DIE_AFTER;
    case ERRNO: case ERRNO_FROM: errno = err; return FAIL;
    case SHORT: return HALF;
    case STOP: real_syscall(SYS_kill, getpid(), SIGSTOP); break;
    case SIGNAL: real_syscall(SYS_kill, getpid(), err); break;
    }
    errno = saved;
    return GO;
}

#define REAL(f) static __typeof__(&f) real; if (!real) real = (__typeof__(&f))dlsym(RTLD_NEXT, #f)
#define CALL(f, type, class, fd, path, signature, arguments)                                                            \
    type f signature { REAL(f); int h = hit(#f, class, fd, path); if (h == FAIL) return -1;                               \
        type x = real arguments; if (h == DIE_AFTER) die(); return x; }

static int is_file(int fd) { struct stat st; return fd > 2 && !real_syscall(SYS_fstat, fd, &st) && S_ISREG(st.st_mode); }

/* Bytes. A write of one byte cannot be cut, so it is no point of a SHORT sweep. */
#define BYTES(f, class, fd, count, signature, arguments)                                                                 \
    ssize_t f signature { REAL(f);                                                                                         \
        int h = armed && is_file(fd) && (mode != SHORT || count > 1) ? hit(#f, class, fd, NULL) : GO;                     \
        if (h == FAIL) return -1; if (h == HALF) count /= 2; ssize_t x = real arguments; if (h == DIE_AFTER) die(); return x; }
BYTES(write, WRITE, fd, n, (int fd, const void *b, size_t n), (fd, b, n))
BYTES(pwrite, WRITE, fd, n, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o))
BYTES(pwrite64, WRITE, fd, n, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o))
BYTES(copy_file_range, WRITE, out, n, (int in, off64_t *i, int out, off64_t *o, size_t n, unsigned f), (in, i, out, o, n, f))
BYTES(sendfile, WRITE, out, n, (int out, int in, off_t *o, size_t n), (out, in, o, n))
BYTES(sendfile64, WRITE, out, n, (int out, int in, off64_t *o, size_t n), (out, in, o, n))
BYTES(read, READ, fd, n, (int fd, void *b, size_t n), (fd, b, n))
BYTES(pread, READ, fd, n, (int fd, void *b, size_t n, off_t o), (fd, b, n, o))
BYTES(pread64, READ, fd, n, (int fd, void *b, size_t n, off64_t o), (fd, b, n, o))
ssize_t __read_chk(int fd, void *b, size_t n, size_t room) { (void)room; return read(fd, b, n); }
ssize_t __pread64_chk(int fd, void *b, size_t n, off64_t o, size_t room) { (void)room; return pread64(fd, b, n, o); }

/* Vectors: cut by handing on the first buffer's first half. */
#define VECTOR(f, class, signature, plain, cut)                                                                          \
    ssize_t f signature { REAL(f);                                                                                         \
        int h = armed && is_file(fd) && (mode != SHORT || (n > 0 && v[0].iov_len > 1)) ? hit(#f, class, fd, NULL) : GO;    \
        if (h == FAIL) return -1;                                                                                          \
        struct iovec half = n > 0 ? v[0] : (struct iovec){0}; half.iov_len /= 2;                                           \
        ssize_t x = h == HALF ? real cut : real plain; if (h == DIE_AFTER) die(); return x; }
VECTOR(writev, WRITE, (int fd, const struct iovec *v, int n), (fd, v, n), (fd, &half, 1))
VECTOR(pwritev, WRITE, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o), (fd, &half, 1, o))
VECTOR(pwritev64, WRITE, (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o), (fd, &half, 1, o))
VECTOR(pwritev2, WRITE, (int fd, const struct iovec *v, int n, off_t o, int f), (fd, v, n, o, f), (fd, &half, 1, o, f))
VECTOR(pwritev64v2, WRITE, (int fd, const struct iovec *v, int n, off64_t o, int f), (fd, v, n, o, f), (fd, &half, 1, o, f))
VECTOR(readv, READ, (int fd, const struct iovec *v, int n), (fd, v, n), (fd, &half, 1))
VECTOR(preadv, READ, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o), (fd, &half, 1, o))
VECTOR(preadv64, READ, (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o), (fd, &half, 1, o))

CALL(rename, int, MOVE, AT_FDCWD, b, (const char *a, const char *b), (a, b))
CALL(renameat, int, MOVE, e, b, (int d, const char *a, int e, const char *b), (d, a, e, b))
CALL(renameat2, int, MOVE, e, b, (int d, const char *a, int e, const char *b, unsigned f), (d, a, e, b, f))
CALL(fsync, int, SYNC, fd, NULL, (int fd), (fd))
CALL(send, ssize_t, NET, fd, NULL, (int fd, const void *b, size_t n, int f), (fd, b, n, f))
CALL(recv, ssize_t, NET, fd, NULL, (int fd, void *b, size_t n, int f), (fd, b, n, f))
CALL(fdatasync, int, SYNC, fd, NULL, (int fd), (fd))
CALL(syncfs, int, SYNC, fd, NULL, (int fd), (fd))
CALL(sync_file_range, int, SYNC, fd, NULL, (int fd, off64_t o, off64_t n, unsigned f), (fd, o, n, f))
CALL(unlink, int, REMOVE, AT_FDCWD, a, (const char *a), (a))
CALL(unlinkat, int, REMOVE, d, a, (int d, const char *a, int f), (d, a, f))
CALL(rmdir, int, REMOVE, AT_FDCWD, a, (const char *a), (a))
CALL(remove, int, REMOVE, AT_FDCWD, a, (const char *a), (a))
CALL(ftruncate, int, REMOVE, fd, NULL, (int fd, off_t l), (fd, l))
CALL(ftruncate64, int, REMOVE, fd, NULL, (int fd, off64_t l), (fd, l))
CALL(truncate, int, REMOVE, AT_FDCWD, a, (const char *a, off_t l), (a, l))
CALL(truncate64, int, REMOVE, AT_FDCWD, a, (const char *a, off64_t l), (a, l))
CALL(fallocate, int, CREATE, fd, NULL, (int fd, int m, off_t o, off_t l), (fd, m, o, l))
CALL(fallocate64, int, CREATE, fd, NULL, (int fd, int m, off64_t o, off64_t l), (fd, m, o, l))
int posix_fallocate(int fd, off_t o, off_t l) { REAL(posix_fallocate); int h = hit("posix_fallocate", CREATE, fd, NULL);
    if (h == FAIL) return errno; int x = real(fd, o, l); if (h == DIE_AFTER) die(); return x; }
int posix_fallocate64(int fd, off64_t o, off64_t l) { REAL(posix_fallocate64); int h = hit("posix_fallocate64", CREATE, fd, NULL);
    if (h == FAIL) return errno; int x = real(fd, o, l); if (h == DIE_AFTER) die(); return x; }
CALL(mkdir, int, CREATE, AT_FDCWD, a, (const char *a, mode_t m), (a, m))
CALL(mkdirat, int, CREATE, d, a, (int d, const char *a, mode_t m), (d, a, m))
CALL(link, int, CREATE, AT_FDCWD, b, (const char *a, const char *b), (a, b))
CALL(linkat, int, CREATE, e, b, (int d, const char *a, int e, const char *b, int f), (d, a, e, b, f))
CALL(symlink, int, CREATE, AT_FDCWD, b, (const char *a, const char *b), (a, b))
CALL(symlinkat, int, CREATE, d, b, (const char *a, int d, const char *b), (a, d, b))
CALL(mknod, int, CREATE, AT_FDCWD, a, (const char *a, mode_t m, dev_t v), (a, m, v))
CALL(mknodat, int, CREATE, d, a, (int d, const char *a, mode_t m, dev_t v), (d, a, m, v))
CALL(mkfifo, int, CREATE, AT_FDCWD, a, (const char *a, mode_t m), (a, m))
CALL(mkfifoat, int, CREATE, d, a, (int d, const char *a, mode_t m), (d, a, m))
CALL(setxattr, int, CREATE, AT_FDCWD, a, (const char *a, const char *k, const void *v, size_t n, int f), (a, k, v, n, f))
CALL(lsetxattr, int, CREATE, AT_FDCWD, a, (const char *a, const char *k, const void *v, size_t n, int f), (a, k, v, n, f))
CALL(fsetxattr, int, CREATE, fd, NULL, (int fd, const char *k, const void *v, size_t n, int f), (fd, k, v, n, f))
CALL(removexattr, int, ATTR, AT_FDCWD, a, (const char *a, const char *k), (a, k))
CALL(lremovexattr, int, ATTR, AT_FDCWD, a, (const char *a, const char *k), (a, k))
CALL(fremovexattr, int, ATTR, fd, NULL, (int fd, const char *k), (fd, k))
CALL(chmod, int, ATTR, AT_FDCWD, a, (const char *a, mode_t m), (a, m))
CALL(fchmod, int, ATTR, fd, NULL, (int fd, mode_t m), (fd, m))
CALL(fchmodat, int, ATTR, d, a, (int d, const char *a, mode_t m, int f), (d, a, m, f))
CALL(lchmod, int, ATTR, AT_FDCWD, a, (const char *a, mode_t m), (a, m))
CALL(chown, int, ATTR, AT_FDCWD, a, (const char *a, uid_t u, gid_t g), (a, u, g))
CALL(lchown, int, ATTR, AT_FDCWD, a, (const char *a, uid_t u, gid_t g), (a, u, g))
CALL(fchown, int, ATTR, fd, NULL, (int fd, uid_t u, gid_t g), (fd, u, g))
CALL(fchownat, int, ATTR, d, a, (int d, const char *a, uid_t u, gid_t g, int f), (d, a, u, g, f))
CALL(utimensat, int, ATTR, d, a, (int d, const char *a, const struct timespec t[2], int f), (d, a, t, f))
CALL(futimens, int, ATTR, fd, NULL, (int fd, const struct timespec t[2]), (fd, t))

/* Opening: O_CREAT, O_TRUNC and O_TMPFILE change the disk; the rest only look. */
static int open_class(int flags) { return (flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE ? CREATE : LOOK; }
#define OPEN(f, signature, fd, arguments)                                                                                \
    int f signature { REAL(f); mode_t m = 0;                                                                               \
        if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) { va_list ap; va_start(ap, flags); m = va_arg(ap, mode_t); va_end(ap); } \
        int h = hit(open_class(flags) == CREATE ? #f "+creat" : #f, open_class(flags), fd, p);                             \
        if (h == FAIL) return -1; int x = real arguments; if (h == DIE_AFTER) die(); return x; }
OPEN(open, (const char *p, int flags, ...), AT_FDCWD, (p, flags, m))
OPEN(open64, (const char *p, int flags, ...), AT_FDCWD, (p, flags, m))
OPEN(openat, (int d, const char *p, int flags, ...), d, (d, p, flags, m))
OPEN(openat64, (int d, const char *p, int flags, ...), d, (d, p, flags, m))
int __open_2(const char *p, int flags) { return open(p, flags); }
int __open64_2(const char *p, int flags) { return open64(p, flags); }
int __openat_2(int d, const char *p, int flags) { return openat(d, p, flags); }
int __openat64_2(int d, const char *p, int flags) { return openat64(d, p, flags); }

/* Looking */
CALL(stat64, int, LOOK, AT_FDCWD, p, (const char *p, struct stat64 *s), (p, s))
CALL(lstat64, int, LOOK, AT_FDCWD, p, (const char *p, struct stat64 *s), (p, s))
CALL(fstatat64, int, LOOK, d, p, (int d, const char *p, struct stat64 *s, int f), (d, p, s, f))
CALL(fstatat, int, LOOK, d, p, (int d, const char *p, struct stat *s, int f), (d, p, s, f))
CALL(statx, int, LOOK, d, p, (int d, const char *p, int f, unsigned m, struct statx *s), (d, p, f, m, s))
ssize_t getdents64(int fd, void *b, size_t n) { REAL(getdents64); int h = hit("getdents64", LOOK, fd, NULL);
    if (h == FAIL) return -1; ssize_t x = real(fd, b, n); if (h == DIE_AFTER) die(); return x; }
struct dirent *readdir(DIR *d) { REAL(readdir); if (armed && hit("readdir", LOOK, dirfd(d), NULL) == FAIL) return NULL; return real(d); }
struct dirent64 *readdir64(DIR *d) { REAL(readdir64); if (armed && hit("readdir64", LOOK, dirfd(d), NULL) == FAIL) return NULL; return real(d); }

/* Calls that go to the kernel by number */
static int raw_class(long nr, const long a[6], const char **name, int *fd, const char **path) {
#define RAW(x, class, f, p) case SYS_##x: *name = "syscall:" #x; *fd = (int)(f); *path = (const char *)(p); return class
    switch (nr) {
    RAW(renameat2, MOVE, a[2], a[3]);
    RAW(renameat, MOVE, a[2], a[3]);
    RAW(fsync, SYNC, a[0], 0);
    RAW(fdatasync, SYNC, a[0], 0);
    RAW(syncfs, SYNC, a[0], 0);
    RAW(unlinkat, REMOVE, a[0], a[1]);
    RAW(mkdirat, CREATE, a[0], a[1]);
    RAW(linkat, CREATE, a[2], a[3]);
    RAW(symlinkat, CREATE, a[1], a[2]);
    RAW(fchmodat, ATTR, a[0], a[1]);
#ifdef SYS_fchmodat2
    RAW(fchmodat2, ATTR, a[0], a[1]);
#endif
    RAW(utimensat, ATTR, a[0], a[1]);
    RAW(copy_file_range, WRITE, a[2], 0);
    RAW(getdents64, LOOK, a[0], 0);
    RAW(statx, LOOK, a[0], a[1]);
    RAW(newfstatat, LOOK, a[0], a[1]);
    case SYS_openat: *name = "syscall:openat"; *fd = (int)a[0]; *path = (const char *)a[1]; return open_class((int)a[2]);
    case SYS_openat2: *name = "syscall:openat2"; *fd = (int)a[0]; *path = (const char *)a[1];
        return open_class((int)((const struct open_how *)a[2])->flags);
    }
    return 0;
}
long syscall(long nr, ...) {
    long a[6]; va_list ap; va_start(ap, nr); for (int i = 0; i < 6; i++) a[i] = va_arg(ap, long); va_end(ap);
    const char *name = NULL, *path = NULL; int fd = -1, h = GO, class = armed ? raw_class(nr, a, &name, &fd, &path) : 0;
    if (class && !(mode == SHORT && (class & WRITE))) h = hit(name, class, fd, path);
    if (h == FAIL) return -1;
    long x = real_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (h == DIE_AFTER) die();
    return x;
}
