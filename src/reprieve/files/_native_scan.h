/* What the two halves of a scan share: walking the tree (_native_walk.c), and the answer (_native_scan.c). */
#ifndef REPRIEVE_NATIVE_SCAN_H
#define REPRIEVE_NATIVE_SCAN_H

#include "_native.h"

#include <pthread.h>
#include <stdatomic.h>

enum { WINDOW = 11 }; /* directories open per walker; two walkers and their helpers stay below 32 */

typedef struct { /* one entry for the answer; `path` and `target` are offsets into the walker's text */
    row_t row;
    size_t path, target;
    int64_t known;
    const uint8_t *text;
} found_t;

typedef struct {
    size_t path, len;
    int error;
    bool is_dir;
    const uint8_t *text;
} problem_t;

typedef struct { /* a new directory, to be walked by whoever is free */
    uint8_t *path;
    size_t len;
    int64_t known;
} job_t;

typedef enum { OPEN, GONE, KEPT } state_t; /* KEPT: cannot be looked into, so what is known below it stays */

typedef struct {
    char *text; /* type byte + name + NUL, one after another */
    size_t text_len, text_cap;
    char **names;
    size_t count, cap, next;
} listing_t;

typedef struct {
    int fd; /* -1 while it is outside the window */
    state_t state;
    const uint8_t *path;
    size_t len;
    dev_t dev;
    ino_t ino;
    listing_t list;
} level_t;

typedef struct {
    int root;
    dev_t root_dev;
    const tree_t *index;
    uint8_t *gone;
    int64_t floor_s;
    int64_t floor_ns;
    bool cross_mounts, parallel;
    const uint32_t *look; /* the rows to look at, in order; NULL: all */
    uint64_t look_count;
    const uint8_t **skip; /* sorted, with lengths */
    size_t *skip_len, skip_count;
    PyObject *accept;
    PyThreadState *ts;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint64_t next_row, chunk;
    job_t *jobs;
    size_t job_count, job_cap;
    int busy;
    atomic_int queued;
    atomic_bool stop;
    atomic_bool no_memory;
    atomic_bool torn; /* a directory that was not to be looked at is not there */
} scan_t;

typedef struct {
    scan_t *s;
    found_t *found;
    size_t found_count, found_cap;
    problem_t *problems;
    size_t problem_count, problem_cap;
    uint8_t *text; /* paths and link targets */
    size_t text_len, text_cap;
    level_t *levels;
    size_t depth, level_cap, lowest; /* levels[lowest..] have open descriptors */
    uint8_t *path;                   /* PATH_LIMIT + NAME_LIMIT: the name being looked at */
    char *buf;
    char name[NAME_LIMIT + 1];
} walker_t;

void stop_for_memory(scan_t *s);
void add_job(scan_t *s, const uint8_t *path, size_t len, int64_t known);
void scan_worker(void *walker);

#endif
