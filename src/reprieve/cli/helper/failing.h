/* How the launcher ends a hook that has no answer. */
#ifndef REPRIEVE_FAILING_H
#define REPRIEVE_FAILING_H

#include <stddef.h>

#define LARGEST_PAYLOAD (1u << 16)
#define ASK_DOCTOR "Ask the user to run `reprieve doctor` in their own terminal."
#define REINSTALL "Ask the user to reinstall Reprieve."

extern char **words;
extern char payload[LARGEST_PAYLOAD]; /* the beginning of what the agent sent, as far as it is read */
extern size_t payload_size;

int write_all(int fd, const char *text, size_t size);

/* Whether this is a hook before a tool call, which has to block the call if it fails. */
int must_block(void);

/* End a hook without an answer. Before a call the agent hears "no" and why; every other event goes on. */
_Noreturn void fail_hook(const char *why, const char *detail, const char *what_to_do);

/* Fail before the agent loses patience: most agents let the call run then. The alarm outlives `exec`. */
void limit_time(void);

#endif
