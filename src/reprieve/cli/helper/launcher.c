/* `reprieve` as it is installed on Linux: hand the command to the resident helper, or become Python.
 *
 * Whatever is unusual means Python: `reprieve-python` beside this program is executed and does the same, 40 ms slower.
 * That is safe at any moment before "go" is sent, because the helper's child does nothing until it has read it.
 *
 *     here                             the helper's child
 *                                  <-  'H'            it is there
 *     words, environment, 0 1 2 .  ->  compares this process with itself
 *                                  <-  'D'            become Python; nothing was done
 *                                  <-  'P' pid        ready
 *     'G'                          ->  runs the command
 *                                  <-  'X' code       it has ended
 *                                  <-  'S' number     it died of a signal (from the helper)
 *
 * An agent's hook sends what it was given at once, on a socket of its own, and the helper may answer it by itself:
 *
 *     words, environment, payload  ->  the helper
 *                                  <-  'A' ...        exit code, standard output and error: that was all
 *                                  <-  'H'            a child is there; on as above
 *
 * docs/design/0005-resident-helper.md says why each thing is compared.
 *
 * A hook before a tool call fails closed (failing.c): whatever goes wrong here makes the agent block the call.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "failing.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

#define PROTOCOL 0x31485052u /* "RPH1" */
#define PROTOCOL_HOOK 0x31515052u /* "RPQ1" */
#define LARGEST_HOOK (1u << 18)
#define PATIENCE_MS 1000
#define LARGEST (8u << 20)

extern char **environ;
char **words;
static char folder[PATH_MAX + 32]; /* where this program really is, without the last slash */

static const char *called_as(void)
{
    const char *name = (const char *)getauxval(AT_EXECFN);
    return name ? name : words[0];
}

static int find_folder(void)
{
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX);
    if (length > 0)
        folder[length] = 0;
    else if (!realpath(called_as(), folder))
        return 0;
    char *slash = strrchr(folder, '/');
    if (!slash)
        return 0;
    *slash = 0;
    return 1;
}

/* What a hook gets on standard input, as far as it is read; `copy` can be read again once it is filled. */
char payload[LARGEST_PAYLOAD];
size_t payload_size;
static int copy = -1;

static ssize_t read_some(void *into, size_t size)
{
    ssize_t got;
    do
        got = read(0, into, size);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Read all of it: 0 if it is too much, or there would be no way to give it back. */
static int take_payload(void)
{
    copy = (int)syscall(SYS_memfd_create, "payload", 1 /* MFD_CLOEXEC */);
    while (copy >= 0 && payload_size < sizeof payload) {
        ssize_t got = read_some(payload + payload_size, sizeof payload - payload_size);
        if (got <= 0)
            return got == 0;
        payload_size += (size_t)got;
    }
    return 0;
}

/* Have on standard input what was there before: who goes on with this begins to read anew. */
static void give_back(void)
{
    if (copy < 0)
        return;
    int is_whole = write_all(copy, payload, payload_size);
    if (payload_size == sizeof payload)
        for (ssize_t got; is_whole && (got = read_some(payload, sizeof payload)) > 0;)
            is_whole = write_all(copy, payload, (size_t)got);
    if (!is_whole)
        fail_hook("there is no memory for what the agent sent", "", ASK_DOCTOR);
    lseek(copy, 0, SEEK_SET);
    dup2(copy, 0);
    close(copy);
    copy = -1;
}

/* Execute the script's interpreter as the kernel would, but without `site`, which bin/reprieve and cli/hooking.py make up
 * for. Returns if that is not possible. */
static void run_lean(const char *script)
{
    static char line[PATH_MAX + 8];
    int fd = open(script, O_RDONLY | O_CLOEXEC), count = 0;
    ssize_t got = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    close(fd);
    char *end = got > 0 ? memchr(line, '\n', (size_t)got) : NULL;
    if (!end || strncmp(line, "#!/", 3))
        return;
    *end = 0;
    char *name = strrchr(line, '/');
    if (!name || strncmp(name, "/python", 7) || strpbrk(line, " \t\r"))
        return; /* a shell that finds it, or options */
    while (words[count])
        count++;
    char **all = calloc((size_t)count + 3, sizeof *all);
    if (!all)
        return;
    all[0] = line + 2;
    all[1] = "-S";
    all[2] = (char *)script;
    memcpy(all + 3, words + 1, (size_t)count * sizeof *all);
    execv(all[0], all);
}

/* Become Python. `wish` is '1' if a helper would have been of use, and '0' if not. */
static _Noreturn void direct(char wish)
{
    give_back();
    const char *name = called_as();
    size_t size = strlen(name) + 2;
    char *value = malloc(size), *program = malloc(sizeof folder + 32);
    if (value && program && folder[0]) {
        snprintf(value, size, "%c%s", wish, name);
        snprintf(program, sizeof folder + 32, "%s/reprieve-python", folder);
        setenv("REPRIEVE_LAUNCHED", value, 1);
        if (words[1] && strcmp(words[1], "hook") == 0)
            run_lean(program);
        execv(program, words);
    }
    if (words[1] && strcmp(words[1], "hook") == 0)
        fail_hook("it can't start Python: ", strerror(errno), REINSTALL);
    fprintf(stderr, "Error: cannot start '%s/reprieve-python': %s\nHint: install reprieve again\n", folder,
            strerror(errno));
    _exit(70);
}

static int starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* The commands that agents and scripts run often and that end by themselves, behind what may stand before any. */
static int is_served(char **words)
{
    static const char *const served[] = {"hook", "checkpoint", "rollback", "revert", "redo", "undo",
                                         "status", "diff", "log", "show", NULL};
    while (*words && (strcmp(*words, "--json") == 0 || strcmp(*words, "-q") == 0))
        words++;
    for (int i = 0; served[i]; i++)
        if (*words && strcmp(*words, served[i]) == 0)
            return 1;
    return 0;
}

/* Nobody sits at a terminal, and what Python itself takes from its environment is not there. */
static int is_plain(void)
{
    for (int fd = 0; fd < 3; fd++) {
        struct stat st;
        if (fstat(fd, &st) || S_ISDIR(st.st_mode) || (S_ISCHR(st.st_mode) && isatty(fd)))
            return 0;
    }
    for (char **one = environ; *one; one++) {
        if (starts(*one, "LD_") || starts(*one, "GLIBC_TUNABLES=") || starts(*one, "REPRIEVE_NATIVE="))
            return 0;
        /* what images with Python in them say about themselves; no interpreter reads it */
        if (starts(*one, "PYTHON_VERSION=") || starts(*one, "PYTHON_SHA256=") || starts(*one, "PYTHON_GET_PIP_") ||
            starts(*one, "PYTHON_PIP_VERSION=") || starts(*one, "PYTHON_SETUPTOOLS_VERSION="))
            continue;
        /* and what they often set: the helper's fork heeds it (stead.py) */
        if (starts(*one, "PYTHONUNBUFFERED=") || starts(*one, "PYTHONDONTWRITEBYTECODE="))
            continue;
        if (starts(*one, "PYTHON"))
            return 0;
    }
    const char *wanted = getenv("REPRIEVE_HELPER");
    if (wanted && *wanted && strcmp(wanted, "on") && strcmp(wanted, "1") && strcmp(wanted, "true") &&
        strcmp(wanted, "yes"))
        return 0;
    sigset_t blocked;
    if (sigprocmask(SIG_BLOCK, NULL, &blocked) || !sigisemptyset(&blocked))
        return 0;
    return getuid() == geteuid() && getgid() == getegid() && !getauxval(AT_SECURE) &&
           prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;
}

/* The store, opened without following a link at its end: -1 if it is not there, -2 if it is not as it must be.
 * The helper computes the path again in Python's way and refuses if that is another directory. */
static int open_home(void)
{
    char path[PATH_MAX];
    const char *home = getenv("REPRIEVE_HOME"), *state = getenv("XDG_STATE_HOME"), *user = getenv("HOME");
    int length;
    if (home && *home)
        length = snprintf(path, sizeof path, "%s", home);
    else if (state && *state == '/')
        length = snprintf(path, sizeof path, "%s/reprieve", state);
    else
        length = snprintf(path, sizeof path, "%s/.local/state/reprieve", user ? user : "");
    if (path[0] != '/' || length >= (int)sizeof path || (!(home && *home) && !(state && *state == '/') && !(user && *user)))
        return -2;
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -1 : -2;
    struct stat st;
    if (fstat(fd, &st) || st.st_uid != geteuid() || st.st_mode & 077)
        return -2;
    return fd;
}

/* A connection to the helper: -1 if there is none, -2 if there is one that cannot be used now. */
static int reach(int home, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* through the descriptor: a path may be longer than an address */
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", home, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -2;
    int on = 1; /* the kernel puts our number on what we send */
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) ||
        connect(fd, (struct sockaddr *)&address, sizeof address)) {
        int why = errno;
        close(fd);
        return why == ENOENT || why == ECONNREFUSED ? -1 : -2;
    }
    return fd;
}

/* The same user, in the same place. The helper's child compares much more; but only from here can it be seen whether
 * this process may look into the helper, which Landlock and other confinements do not allow from the inside. */
static int is_our_like(int connection)
{
    struct ucred server;
    socklen_t size = sizeof server;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &server, &size) || server.uid != geteuid() || server.pid <= 0)
        return 0;
    char path[64], ours[128], theirs[128];
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)server.pid);
    ssize_t a = readlink("/proc/self/ns/mnt", ours, sizeof ours), b = readlink(path, theirs, sizeof theirs);
    if (a <= 0 || a != b || memcmp(ours, theirs, (size_t)a))
        return 0;
    return syscall(SYS_ioprio_get, 1, 0) == syscall(SYS_ioprio_get, 1, server.pid);
}

static int left_ms(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long gone = (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000;
    return gone >= PATIENCE_MS ? 0 : (int)(PATIENCE_MS - gone);
}

static int wait_for(int fd, short what, const struct timespec *start)
{
    struct pollfd one = {.fd = fd, .events = what};
    int ready;
    do
        ready = poll(&one, 1, left_ms(start));
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* Header, then strings with their final zero: folder, name, words, environment; of a hook the payload, too. */
static char *make_request(size_t *size, int is_hook)
{
    uint32_t header[5] = {is_hook ? PROTOCOL_HOOK : PROTOCOL, 0, 0, 0, (uint32_t)payload_size};
    size_t of_header = (is_hook ? 5 : 4) * sizeof *header;
    const char *name = called_as();
    size_t length = of_header + strlen(folder) + strlen(name) + 2 + (is_hook ? payload_size : 0);
    for (char **one = words + 1; *one; one++, header[2]++)
        length += strlen(*one) + 1;
    for (char **one = environ; *one; one++, header[3]++)
        length += strlen(*one) + 1;
    char *request = length > (is_hook ? LARGEST_HOOK : LARGEST) ? NULL : malloc(length), *at = request;
    if (!request)
        return NULL;
    header[1] = (uint32_t)length;
    memcpy(at, header, of_header);
    at = stpcpy(at + of_header, folder) + 1;
    at = stpcpy(at, name) + 1;
    for (char **one = words + 1; *one; one++)
        at = stpcpy(at, *one) + 1;
    for (char **one = environ; *one; one++)
        at = stpcpy(at, *one) + 1;
    if (is_hook)
        memcpy(at, payload, payload_size);
    *size = length;
    return request;
}

static int receive_all(int connection, void *into, size_t size, const struct timespec *start)
{
    for (size_t have = 0; have < size;) {
        if (!wait_for(connection, POLLIN, start))
            return 0;
        ssize_t got = recv(connection, (char *)into + have, size - have, 0);
        if (got <= 0 && !(got < 0 && (errno == EAGAIN || errno == EINTR)))
            return 0;
        have += got > 0 ? (size_t)got : 0;
    }
    return 1;
}

/* Ends here if the helper answers by itself. Else it says 'H', and the first byte of that is read. */
static int ask_hook(int connection, const struct timespec *start)
{
    size_t size = 0;
    char *request = make_request(&size, 1);
    if (!request || send(connection, request, size, MSG_NOSIGNAL) != (ssize_t)size)
        return 0;
    free(request);
    char kind;
    uint32_t answer[3]; /* exit code, lengths of standard output and error */
    if (!receive_all(connection, &kind, 1, start))
        return 0;
    if (kind != 'A') {
        give_back();
        return kind == 'H';
    }
    if (!receive_all(connection, answer, sizeof answer, start))
        return 0;
    size = (size_t)answer[1] + answer[2];
    char *text = malloc(size + 1);
    if (!text || !receive_all(connection, text, size, start))
        return 0;
    if (!write_all(1, text, answer[1]))
        fail_hook("its answer can't be written: ", strerror(errno), ASK_DOCTOR);
    write_all(2, text + answer[1], answer[2]);
    _exit((int)answer[0]);
}

static int send_request(int connection, const struct timespec *start)
{
    size_t size = 0;
    char *request = make_request(&size, 0);
    int fds[4] = {0, 1, 2, open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (!request || fds[3] < 0)
        return 0;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct iovec part = {request, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(rights), fds, sizeof fds);
    while (part.iov_len) {
        ssize_t sent = sendmsg(connection, &message, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!wait_for(connection, POLLOUT, start))
                return 0;
            continue;
        }
        if (sent <= 0)
            return 0;
        part.iov_base = (char *)part.iov_base + sent;
        part.iov_len -= (size_t)sent;
        message.msg_control = NULL; /* the descriptors went with the first bytes */
        message.msg_controllen = 0;
    }
    close(fds[3]);
    free(request);
    return 1;
}

/* Nothing is sent before the child is there: descriptors in the queue of a helper that hangs would keep them open. */
static int is_there(int connection, const struct timespec *start)
{
    char answer;
    return receive_all(connection, &answer, 1, start) && answer == 'H';
}

/* The child's number, or 0 if it will not do it. */
static pid_t wait_for_child(int connection, const struct timespec *start)
{
    unsigned char answer[5];
    if (!receive_all(connection, answer, 1, start) || answer[0] != 'P' || !receive_all(connection, answer + 1, 4, start))
        return 0;
    uint32_t pid;
    memcpy(&pid, answer + 1, sizeof pid);
    return (pid_t)pid;
}

static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
static volatile sig_atomic_t arrived[4];

static void note(int number)
{
    for (int i = 0; i < 4; i++)
        if (passed_on[i] == number)
            arrived[i] = 1;
}

static _Noreturn void die_of(int number)
{
    sigset_t none;
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core); /* a core of this program would say nothing */
    signal(number, SIG_DFL);
    sigemptyset(&none);
    sigaddset(&none, number);
    sigprocmask(SIG_UNBLOCK, &none, NULL);
    raise(number);
    _exit(128 + number);
}

/* Say "go", pass signals on, and end as the command ends. */
static _Noreturn void follow(int connection, int child)
{
    sigset_t held, before;
    sigemptyset(&held);
    for (int i = 0; i < 4; i++) {
        struct sigaction action = {.sa_handler = note}, old;
        sigaction(passed_on[i], NULL, &old);
        if (old.sa_handler == SIG_IGN)
            continue; /* it is ignored by the child too */
        sigaddset(&held, passed_on[i]);
        sigaction(passed_on[i], &action, NULL);
    }
    /* heard only while waiting in ppoll, so that none slips in between the look and the wait */
    sigprocmask(SIG_BLOCK, &held, &before);
    if (send(connection, "G", 1, MSG_NOSIGNAL) != 1) {
        for (int i = 0; i < 4; i++)
            if (sigismember(&held, passed_on[i]))
                signal(passed_on[i], SIG_DFL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        direct('0');
    }
    unsigned char answer[5];
    size_t have = 0;
    while (have < sizeof answer) {
        struct pollfd one = {.fd = connection, .events = POLLIN};
        ppoll(&one, 1, NULL, &before);
        for (int i = 0; i < 4; i++)
            if (arrived[i]) {
                arrived[i] = 0;
                syscall(SYS_pidfd_send_signal, child, passed_on[i], NULL, 0);
            }
        ssize_t got = recv(connection, answer + have, sizeof answer - have, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    uint32_t value;
    memcpy(&value, answer + 1, sizeof value);
    if (must_block()) {
        if (have < sizeof answer || answer[0] != 'X')
            fail_hook("its process was killed", "", ASK_DOCTOR);
        if (value != 0 && value != 2)
            fail_hook("its process failed", "", ASK_DOCTOR);
    }
    if (have == sizeof answer && answer[0] == 'X')
        _exit((int)value);
    if (have == sizeof answer && answer[0] == 'S')
        die_of((int)value);
    fprintf(stderr, "Error: the command ended unexpectedly\n"
                    "Hint: what was begun is finished or undone by the next command; run it again\n"
                    "Hint: run it without the resident helper: REPRIEVE_HELPER=off\n");
    _exit(70);
}

int main(int argc, char **argv)
{
    words = argv;
    if (argc < 1)
        return 70;
    if (must_block())
        limit_time();
    if (!find_folder() || !is_served(argc ? argv + 1 : argv) || !is_plain())
        direct('0');
    int home = open_home();
    if (home < 0)
        direct(home == -1 ? '1' : '0');
    int is_hook = strcmp(argv[1], "hook") == 0 && take_payload();
    if (!is_hook)
        give_back();
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    int connection = reach(home, is_hook ? "hooks" : "helper");
    if (connection < 0)
        direct(connection == -1 ? '1' : '0');
    if (!is_our_like(connection) || !(is_hook ? ask_hook(connection, &start) : is_there(connection, &start)) ||
        !send_request(connection, &start))
        direct('0');
    pid_t pid = wait_for_child(connection, &start);
    int child = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (child < 0)
        direct('0');
    fcntl(child, F_SETFD, FD_CLOEXEC);
    follow(connection, child);
}
