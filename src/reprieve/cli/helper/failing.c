/* End a hook that has no answer, so that the agent blocks the call which it asked about. */
#define _GNU_SOURCE
#include "failing.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_S 57       /* we ask agents to give a hook 60 s (agents/) */
#define CLINE_LIMIT_S 27 /* Cline's extension gives it 30 s, and can't be asked */

/* The events that agents/ reads as BEFORE: the agent waits for a yes or no. bin/reprieve has the same list. */
static const char *const events[] = {
    "PreToolUse", "preToolUse", "pre_tool_use", "BeforeTool", "tool_call", "before", "beforeShellExecution",
    "beforeMCPExecution", "beforeReadFile", "pre_read_code", "pre_write_code", "pre_run_command", "pre_mcp_tool_use",
    NULL};

static int is_same(const char *one, const char *other) { return one && strcmp(one, other) == 0; }

int write_all(int fd, const char *text, size_t size)
{
    while (size) {
        ssize_t done = write(fd, text, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return 0;
        text += done;
        size -= (size_t)done;
    }
    return 1;
}

/* Put texts together, up to a NULL; as they stand in a JSON string if `is_json`. Takes no memory and no lock, because it may
 * run in a signal's handler. */
static size_t join(char *into, size_t size, int is_json, const char *const *texts)
{
    size_t length = 0;
    for (; *texts; texts++)
        for (const char *one = *texts; *one && length + 3 < size; one++) {
            if (is_json && (*one == '"' || *one == '\\'))
                into[length++] = '\\';
            into[length++] = is_json && (unsigned char)*one < ' ' ? ' ' : *one;
        }
    into[length] = 0;
    return length;
}
#define JOIN(into, is_json, ...) join(into, sizeof into, is_json, (const char *const[]){__VA_ARGS__, NULL})

int must_block(void)
{
    if (!is_same(words[1], "hook") || is_same(getenv("REPRIEVE_DISABLED"), "1"))
        return 0;
    if (is_same(words[2], "--help") || is_same(words[2], "-h"))
        return 0;
    const char *named = words[2] ? words[3] : NULL;
    /* Without a name on the command line the payload tells. What isn't all there, or has no name in it, may be anything. */
    static const char key[] = "\"hook_event_name\"";
    if (!named && (payload_size == sizeof payload || !memmem(payload, payload_size, key, sizeof key - 1)))
        return 1;
    for (int i = 0; events[i]; i++) {
        char quoted[64];
        size_t size = JOIN(quoted, 0, "\"", events[i], "\"");
        if (named ? is_same(named, events[i]) : memmem(payload, payload_size, quoted, size) != NULL)
            return 1;
    }
    return 0;
}

/* Exit 2 with a reason on standard error blocks a call, but for Cline, which heeds nothing but standard output, and in the
 * line that earlier versions gave Copilot, which hides the exit code. */
_Noreturn void fail_hook(const char *why, const char *detail, const char *what_to_do)
{
    static char text[2 * PATH_MAX], quoted[2 * PATH_MAX], answer[6 * PATH_MAX];
    size_t size, length = 0;
    if (!must_block()) {
        size = JOIN(text, 0, "reprieve: this step is not recorded: ", why, detail, "\n");
        write_all(2, text, size);
        _exit(70);
    }
    size = JOIN(text, 0, "Blocked by Reprieve: ", why, detail, ". Nothing ran. ", what_to_do);
    JOIN(quoted, 1, text);
    if (is_same(words[2], "cline"))
        length = JOIN(answer, 0, "{\"cancel\": true, \"errorMessage\": \"", quoted, "\"}\n");
    else if (is_same(words[2], "copilot"))
        length = JOIN(answer, 0, "{\"permissionDecision\": \"deny\", \"permissionDecisionReason\": \"", quoted,
                      "\", \"hookSpecificOutput\": {\"hookEventName\": \"PreToolUse\", "
                      "\"permissionDecision\": \"deny\", \"permissionDecisionReason\": \"", quoted, "\"}}\n");
    text[size++] = '\n';
    write_all(2, text, size);
    _exit(length && write_all(1, answer, length) ? 0 : 2);
}

static void over_time(int number)
{
    (void)number;
    fail_hook("it took too long", "", ASK_DOCTOR);
}

void limit_time(void)
{
    struct sigaction action = {.sa_handler = over_time};
    sigaction(SIGALRM, &action, NULL);
    alarm(is_same(words[2], "cline") ? CLINE_LIMIT_S : LIMIT_S);
}
