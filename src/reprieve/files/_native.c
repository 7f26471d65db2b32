/* reprieve.files._native: the parts of the file engine that touch every file. _native.h says what holds in all of them. */
#include "_native.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#ifdef __linux__
#include <sched.h>
#endif
#include <signal.h>

/* Makes room for `need` items; false when memory is short, with the old block untouched. */
bool grow(void *block, size_t *cap, size_t need, size_t item)
{
    void **p = block;
    if (need <= *cap)
        return true;
    size_t want = *cap ? *cap : 16;
    while (want < need) {
        if (want > SIZE_MAX / 2 / item)
            return false;
        want *= 2;
    }
    void *q = realloc(*p, want * item);
    if (!q)
        return false;
    *p = q;
    *cap = want;
    return true;
}

/* A new thread is often put where its parent runs, and stays there waiting for milliseconds: longer than most of our work
 * takes. So it is started elsewhere. Where that can't be said, or there is no other processor, nothing is changed. */
static void start_elsewhere(pthread_attr_t *attr)
{
#ifdef __GLIBC__
    cpu_set_t others;
    int here = sched_getcpu();
    if (here < 0 || sched_getaffinity(0, sizeof others, &others))
        return;
    CPU_CLR(here, &others);
    if (CPU_COUNT(&others))
        pthread_attr_setaffinity_np(attr, sizeof others, &others);
#else
    (void)attr;
#endif
}

/* Whether a thread could run beside this one; false where that can't be told. */
bool has_other_processor(void)
{
#ifdef __GLIBC__
    cpu_set_t ours;
    return !sched_getaffinity(0, sizeof ours, &ours) && CPU_COUNT(&ours) > 1;
#else
    return false;
#endif
}

bool start_thread(pthread_t *thread, void (*work)(void *), void *arg)
{
    /* The interpreter expects signals on its own threads. */
    sigset_t all, old;
    pthread_attr_t attr;
    bool started = false;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    if (!pthread_attr_init(&attr)) {
        start_elsewhere(&attr);
        started = pthread_create(thread, &attr, (void *(*)(void *))(void (*)(void))work, arg) == 0;
        pthread_attr_destroy(&attr);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}

/* Runs `work` on one or two threads; the second is a bonus, so failing to start it is no error. */
void run_threads(void (*work)(void *), void *first, void *second)
{
    pthread_t thread;
    bool started = second && start_thread(&thread, work, second);
    work(first);
    if (started)
        pthread_join(thread, NULL);
}

static PyObject *py_trim(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    Py_RETURN_NONE;
}

#define KEYWORDS(f) (PyCFunction)(void (*)(void)) f, METH_VARARGS | METH_KEYWORDS, NULL

static PyMethodDef methods[] = {
    {"scan", KEYWORDS(py_scan)},
    {"scan_begin", KEYWORDS(py_scan_begin)},
    {"scan_end", py_scan_end, METH_O, NULL},
    {"read_rows", KEYWORDS(py_read_rows)},
    {"merge", KEYWORDS(py_merge)},
    {"find", py_find, METH_VARARGS, NULL},
    {"orphans", py_orphans, METH_VARARGS, NULL},
    {"totals", py_totals, METH_VARARGS, NULL},
    {"rows_with", py_rows_with, METH_VARARGS, NULL},
    {"has_end", py_has_end, METH_VARARGS, NULL},
    {"get", py_get, METH_VARARGS, NULL},
    {"entries", py_entries, METH_VARARGS, NULL},
    {"pack", py_pack, METH_VARARGS, NULL},
    {"check", py_check, METH_O, NULL},
    {"diff", py_diff, METH_VARARGS, NULL},
    {"sha256", py_sha256, METH_O, NULL},
    {"cuts", py_cuts, METH_VARARGS, NULL},
    {"write_files", py_write_files, METH_VARARGS, NULL},
    {"make_dirs", py_make_dirs, METH_VARARGS, NULL},
    {"finish_dirs", py_finish_dirs, METH_VARARGS, NULL},
    {"unlink_many", py_unlink_many, METH_VARARGS, NULL},
    {"move_many", py_move_many, METH_VARARGS, NULL},
    {"look_at", py_look_at, METH_VARARGS, NULL},
    {"with_xattrs", py_with_xattrs, METH_VARARGS, NULL},
    {"rename2", py_rename2, METH_VARARGS, NULL},
    {"open_beneath", KEYWORDS(py_open_beneath)},
    {"fill_stats", py_fill_stats, METH_VARARGS, NULL},
    {"stat_many", py_stat_many, METH_VARARGS, NULL},
    {"syncfs", py_syncfs, METH_VARARGS, NULL},
    {"birth", py_birth, METH_VARARGS, NULL},
    {"writers", py_writers, METH_VARARGS, NULL},
    {"trim", py_trim, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    (void)module;
    set_up_hashes();
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "reprieve.files._native",
    .m_doc = "The file engine's native functions; see _native.pyi.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
