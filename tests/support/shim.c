/* Preloaded into a program under test.
 *
 * SHIM_STOP_AT=N    the N-th call that moves something durable (rename, unlink, link, mkdir, fsync, ...) stops the
 *                   process before it happens, so that somebody else can act in exactly that moment
 * SHIM_COUNT=FILE   the number of such calls is written there at exit
 * SHIM_CLOCK=S      the wall clock is S seconds ahead (negative: behind); file times keep the kernel's clock
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long calls, stop_at, shift;

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("SHIM_STOP_AT"), *ahead = getenv("SHIM_CLOCK");
    stop_at = at ? atol(at) : 0;
    shift = ahead ? atol(ahead) : 0;
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("SHIM_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%ld\n", calls);
        fclose(file);
    }
}

static void moment(void)
{
    if (__sync_add_and_fetch(&calls, 1) == stop_at)
        kill(getpid(), SIGSTOP);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* a program that ends without its destructors is counted too */
void _exit(int code) { end(); syscall(SYS_exit_group, code); __builtin_unreachable(); }

int rename(const char *a, const char *b) { moment(); return REAL(rename)(a, b); }
int renameat(int d, const char *a, int e, const char *b) { moment(); return REAL(renameat)(d, a, e, b); }
int renameat2(int d, const char *a, int e, const char *b, unsigned f) { moment(); return REAL(renameat2)(d, a, e, b, f); }
int unlink(const char *a) { moment(); return REAL(unlink)(a); }
int unlinkat(int d, const char *a, int f) { moment(); return REAL(unlinkat)(d, a, f); }
int rmdir(const char *a) { moment(); return REAL(rmdir)(a); }
int mkdir(const char *a, mode_t m) { moment(); return REAL(mkdir)(a, m); }
int mkdirat(int d, const char *a, mode_t m) { moment(); return REAL(mkdirat)(d, a, m); }
int link(const char *a, const char *b) { moment(); return REAL(link)(a, b); }
int linkat(int d, const char *a, int e, const char *b, int f) { moment(); return REAL(linkat)(d, a, e, b, f); }
int symlinkat(const char *a, int d, const char *b) { moment(); return REAL(symlinkat)(a, d, b); }
int fsync(int f) { moment(); return REAL(fsync)(f); }
int fdatasync(int f) { moment(); return REAL(fdatasync)(f); }
int syncfs(int f) { moment(); return REAL(syncfs)(f); }

long syscall(long number, ...)
{
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (number == SYS_renameat2)
        moment();
    return REAL(syscall)(number, a, b, c, d, e, f);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = REAL(clock_gettime)(clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift;
    return result;
}

time_t time(time_t *out)
{
    time_t now = REAL(time)(NULL) + shift;
    if (out)
        *out = now;
    return now;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int result = REAL(gettimeofday)(now, zone);
    if (!result)
        now->tv_sec += shift;
    return result;
}
