/* Walk a tree on disk beside its index.
 *
 * The index is walked in chunks of rows, by two threads: one stat per known entry, a chain of open directories for the
 * place in the tree. Directories that the index does not know become jobs, walked depth first by whoever is free.
 */
#include "_native_scan.h"

#include <dirent.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

void stop_for_memory(scan_t *s)
{
    s->no_memory = true;
    s->stop = true;
}

static bool keep_text(walker_t *w, const void *p, size_t len, size_t *at)
{
    if (!grow(&w->text, &w->text_cap, w->text_len + len + 1, 1)) { /* one more: never NULL, even for the root's path */
        stop_for_memory(w->s);
        return false;
    }
    *at = w->text_len;
    memcpy(w->text + w->text_len, p, len);
    w->text_len += len;
    return true;
}

static void problem(walker_t *w, const uint8_t *path, size_t len, int error, bool is_dir)
{
    problem_t p = {.len = len, .error = error, .is_dir = is_dir};
    if (!keep_text(w, path, len, &p.path))
        return;
    if (!grow(&w->problems, &w->problem_cap, w->problem_count + 1, sizeof p))
        stop_for_memory(w->s);
    else
        w->problems[w->problem_count++] = p;
}

static bool is_changed(const scan_t *s, const row_t *r, const struct stat *st)
{
    if (r->flags & (RACY | NEEDS) || r->kind != kind_of(st->st_mode) || r->mode != (st->st_mode & 07777) ||
        r->uid != st->st_uid || r->gid != st->st_gid || r->ino != st->st_ino || r->mtime_s != st->MTIM.tv_sec ||
        r->mtime_ns != (uint32_t)st->MTIM.tv_nsec || r->ctime_s != st->CTIM.tv_sec ||
        r->ctime_ns != (uint32_t)st->CTIM.tv_nsec)
        return true;
    /* Device numbers change over a reboot; being on the root's device does not. */
    if ((r->dev == s->index->rows[0].dev) != (st->st_dev == s->root_dev))
        return true;
    if (r->kind == 'd')
        return false;
    if (r->size != (uint64_t)st->st_size || r->nlink != (uint32_t)st->st_nlink)
        return true;
    return (r->kind == 'c' || r->kind == 'b') && r->rdev != (uint64_t)st->st_rdev;
}

static bool is_young(const scan_t *s, int64_t sec, int64_t ns)
{
    if (sec > s->floor_s || (sec == s->floor_s && ns >= s->floor_ns))
        return true;
    return ns == 0 && (uint64_t)s->floor_s - (uint64_t)sec <= 2; /* a file system with whole seconds */
}

static void emit(walker_t *w, const uint8_t *path, size_t len, const struct stat *st, int64_t known, size_t target_len)
{
    found_t f;
    memset(&f, 0, sizeof f);
    f.known = known;
    fill_row(&f.row, st);
    f.row.path_len = (uint16_t)len;
    if (f.row.kind == 'f')
        f.row.flags |= NEEDS;
    if (is_young(w->s, f.row.mtime_s, f.row.mtime_ns) || is_young(w->s, f.row.ctime_s, f.row.ctime_ns))
        f.row.flags |= RACY;
    if (known >= 0) {
        const row_t *old = w->s->index->rows + known;
        if (old->kind == f.row.kind) {
            memcpy(f.row.content, old->content, 32);
            f.row.link = old->link;
            f.row.flags |= old->flags & CHUNKED;
        }
    }
    f.row.extra_len = f.row.kind == 'l' ? (uint32_t)target_len + 8 : 0;
    if (!keep_text(w, path, len, &f.path) || !keep_text(w, w->buf, target_len, &f.target))
        return;
    if (!grow(&w->found, &w->found_cap, w->found_count + 1, sizeof f))
        stop_for_memory(w->s);
    else
        w->found[w->found_count++] = f;
}

static bool is_skipped(const scan_t *s, const uint8_t *path, size_t len)
{
    size_t lo = 0, hi = s->skip_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int c = path_cmp(s->skip[mid], s->skip_len[mid], path, len);
        if (c == 0)
            return true;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

void add_job(scan_t *s, const uint8_t *path, size_t len, int64_t known)
{
    job_t job = {malloc(len + 1), len, known};
    pthread_mutex_lock(&s->lock);
    if (!job.path || !grow(&s->jobs, &s->job_cap, s->job_count + 1, sizeof job)) {
        free(job.path);
        stop_for_memory(s);
    } else {
        memcpy(job.path, path, len);
        s->jobs[s->job_count++] = job;
        s->queued++;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
}

/* A level comes back into the window of open descriptors; `child` is a directory that was in it, or -1. */
static void reopen(walker_t *w, size_t at, int child)
{
    level_t *l = &w->levels[at];
    struct stat st;
    int error = ESTALE;
    /* `..` first: going by path would make a tree of depth n cost n * n. The inode says whether it led back. */
    for (int by_path = child < 0; by_path < 2; by_path++) {
        int fd = by_path ? open_path(w->s->root, l->path, l->len, O_DIRFD, 0) : openat_again(child, "..", O_DIRFD, 0);
        if (fd >= 0 && !fstat(fd, &st) && st.st_dev == l->dev && st.st_ino == l->ino) {
            l->fd = fd;
            w->lowest = at;
            return;
        }
        error = fd < 0 ? errno : ESTALE;
        close_quietly(fd);
    }
    l->state = KEPT;
    problem(w, l->path, l->len, error, true);
}

static void free_listing(listing_t *list)
{
    free(list->text);
    free(list->names);
    memset(list, 0, sizeof *list);
}

static void pop(walker_t *w)
{
    level_t *l = &w->levels[--w->depth];
    free_listing(&l->list);
    if (w->depth && w->levels[w->depth - 1].state == OPEN && w->levels[w->depth - 1].fd < 0 && !w->s->stop)
        reopen(w, w->depth - 1, l->fd);
    close_quietly(l->fd);
}

static level_t *push(walker_t *w, state_t state, int fd, const struct stat *st, const uint8_t *path, size_t len)
{
    if (!grow(&w->levels, &w->level_cap, w->depth + 1, sizeof *w->levels)) {
        close_quietly(fd);
        stop_for_memory(w->s);
        return NULL;
    }
    level_t *l = &w->levels[w->depth];
    memset(l, 0, sizeof *l);
    l->fd = fd;
    l->state = state;
    l->path = path;
    l->len = len;
    if (fd >= 0) {
        l->dev = st->st_dev;
        l->ino = st->st_ino;
        if (w->depth == 0)
            w->lowest = 0;
        else if (w->depth - w->lowest >= WINDOW) {
            close(w->levels[w->lowest].fd);
            w->levels[w->lowest++].fd = -1;
        }
    }
    w->depth++;
    return l;
}

static bool add_name(listing_t *list, const char *name, unsigned char type)
{
    size_t len = strlen(name) + 1;
    if (name[0] == '.' && (len == 2 || (len == 3 && name[1] == '.')))
        return true;
    if (!grow(&list->text, &list->text_cap, list->text_len + len + 1, 1) ||
        !grow(&list->names, &list->cap, list->count + 1, sizeof *list->names))
        return false;
    list->names[list->count++] = (char *)(uintptr_t)list->text_len; /* an offset until the text stops moving */
    list->text[list->text_len] = (char)type;
    memcpy(list->text + list->text_len + 1, name, len);
    list->text_len += len + 1;
    return true;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a + 1, *(char *const *)b + 1); }

/* All names of a directory, sorted. Returns an errno. */
static int list_dir(walker_t *w, int fd, listing_t *list)
{
    bool enough = true;
    int error = 0;
#ifdef __linux__
    struct entry { /* struct linux_dirent64 */
        uint64_t ino;
        int64_t off;
        unsigned short len;
        unsigned char type;
        char name[];
    };
    long n;
    while (enough && (n = syscall(SYS_getdents64, fd, w->buf, BUF_SIZE)) != 0) {
        if (n < 0) {
            error = errno;
            break;
        }
        for (long at = 0; enough && at < n;) {
            struct entry *e = (struct entry *)(w->buf + at);
            enough = add_name(list, e->name, e->type);
            at += e->len;
        }
    }
#else
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    (void)w;
    if (!dir) {
        error = errno;
        close_quietly(copy);
        return error;
    }
    for (struct dirent *e; errno = 0, enough && (e = readdir(dir));)
        enough = add_name(list, e->d_name, e->d_type);
    error = errno;
    closedir(dir);
#endif
    if (!enough) {
        stop_for_memory(w->s);
        return ENOMEM;
    }
    for (size_t i = 0; i < list->count; i++)
        list->names[i] = list->text + (uintptr_t)list->names[i];
    if (list->count > 1)
        qsort(list->names, list->count, sizeof *list->names, compare_names);
    size_t kept = 0; /* a directory that changes meanwhile may name an entry twice */
    for (size_t i = 0; i < list->count; i++)
        if (!kept || strcmp(list->names[kept - 1] + 1, list->names[i] + 1))
            list->names[kept++] = list->names[i];
    list->count = kept;
    return error;
}

static bool on_other_device(const scan_t *s, const struct stat *st) { return !s->cross_mounts && st->st_dev != s->root_dev; }

/* A bind mount of the same file system has the same device; renames do not cross it all the same. */
static bool is_mount_root(const scan_t *s, int fd)
{
#if defined(__linux__) && defined(STATX_ATTR_MOUNT_ROOT)
    struct statx st;
    if (!s->cross_mounts && fd >= 0 && !statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &st))
        return st.stx_attributes & STATX_ATTR_MOUNT_ROOT;
#else
    (void)s;
    (void)fd;
#endif
    return false;
}

/* Something that was no directory when last seen: one stat, and the target if it is a link. */
static void leaf(walker_t *w, int dir, const char *name, const uint8_t *path, size_t len, int64_t known)
{
    scan_t *s = w->s;
    struct stat st;
    for (int tries = 0; tries < 3; tries++) {
        if (fstatat(dir, name, &st, AT_ENTRY)) {
            if (errno != ENOENT)
                problem(w, path, len, errno, known >= 0 && s->index->rows[known].kind == 'd');
            else if (known >= 0)
                s->gone[known] = 1;
            return;
        }
        if (on_other_device(s, &st)) {
            problem(w, path, len, EXDEV, S_ISDIR(st.st_mode));
            return;
        }
        if (S_ISDIR(st.st_mode)) {
            add_job(s, path, len, known);
            return;
        }
        if (known >= 0 && !is_changed(s, s->index->rows + known, &st))
            return;
        ssize_t n = 0;
        if (S_ISLNK(st.st_mode))
            n = readlinkat(dir, name, w->buf, BUF_SIZE);
        if (n >= 0) {
            emit(w, path, len, &st, known, (size_t)n);
            return;
        }
        if (errno != EINVAL && errno != ENOENT) { /* those two: it was replaced since the stat, look again */
            problem(w, path, len, errno, false);
            return;
        }
    }
    problem(w, path, len, EAGAIN, false);
}

static bool is_accepted(scan_t *s, const uint8_t *path, size_t len, bool is_dir)
{
    if (!s->accept)
        return true;
    PyEval_RestoreThread(s->ts);
    PyObject *answer = PyObject_CallFunction(s->accept, "y#O", path, (Py_ssize_t)len, is_dir ? Py_True : Py_False);
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    s->ts = PyEval_SaveThread();
    if (yes < 0)
        s->stop = true; /* the exception waits in the thread state */
    return yes > 0;
}

static void enter(walker_t *w, int dir, const char *name, const uint8_t *path, size_t len, int64_t known, bool was_dir);

/* A name that is not in the index, in the directory whose path is w->path[:len]. */
static void visit_new(walker_t *w, int dir, size_t len, const char *entry, bool descend)
{
    scan_t *s = w->s;
    const char *name = entry + 1;
    size_t name_len = strnlen(name, NAME_LIMIT);
    unsigned char type = (unsigned char)entry[0];
    struct stat st;
    if (len)
        w->path[len++] = '/';
    memcpy(w->path + len, name, name_len);
    len += name_len;
    if (is_skipped(s, w->path, len))
        return;
    if (type == DT_UNKNOWN && !fstatat(dir, name, &st, AT_ENTRY))
        type = S_ISDIR(st.st_mode) ? DT_DIR : DT_REG;
    bool is_dir = type == DT_DIR;
    if (len > PATH_LIMIT)
        problem(w, w->path, len, ENAMETOOLONG, is_dir);
    else if (!is_accepted(s, w->path, len, is_dir))
        return;
    else if (!is_dir)
        leaf(w, dir, name, w->path, len, -1);
    else if (!descend || (s->parallel && s->queued < 8))
        add_job(s, w->path, len, -1); /* keep the other thread fed */
    else
        enter(w, dir, name, w->path, len, -1, false);
}

/* A directory, or what has taken its place. `was_dir`: its children are rows of the index and will follow. */
static void enter(walker_t *w, int dir, const char *name, const uint8_t *path, size_t len, int64_t known, bool was_dir)
{
    scan_t *s = w->s;
    struct stat st;
    state_t below = KEPT;
    int fd = -1, error = 0;
    for (int tries = 0; tries < 3; tries++) {
        fd = openat_again(dir, name, O_DIRFD, 0);
        error = fd < 0 ? errno : 0;
        if (fd >= 0 ? fstat(fd, &st) : fstatat(dir, name, &st, AT_ENTRY)) {
            if (errno != ENOENT) {
                problem(w, path, len, errno, true);
            } else {
                below = GONE;
                if (known >= 0)
                    s->gone[known] = 1;
                else
                    problem(w, path, len, ENOENT, true); /* it was listed: it, or a directory above it, moved */
            }
            goto closed;
        }
        if (fd >= 0 || !S_ISDIR(st.st_mode) || (error != ENOTDIR && error != ELOOP && error != ENOENT))
            break; /* else it was replaced between the two calls */
    }
    if (!S_ISDIR(st.st_mode)) {
        below = GONE;
        leaf(w, dir, name, path, len, known);
        goto closed;
    }
    if (on_other_device(s, &st)) {
        problem(w, path, len, EXDEV, true);
        goto closed;
    }
    bool changed = known < 0 || is_changed(s, s->index->rows + known, &st);
    if (changed && len && is_mount_root(s, fd)) {
        problem(w, path, len, EXDEV, true);
        goto closed;
    }
    if (changed)
        emit(w, path, len, &st, known, 0);
    if (fd < 0) {
        problem(w, path, len, error, true);
        goto closed;
    }
    level_t *l = push(w, OPEN, fd, &st, path, len);
    if (!l || !changed)
        return;
    listing_t list = {0};
    if ((error = list_dir(w, fd, &list))) {
        problem(w, path, len, error, true);
        l->state = was_dir ? KEPT : OPEN;
        free_listing(&list);
    } else if (!was_dir) {
        l->list = list;
    } else {
        if (path != w->path)
            memcpy(w->path, path, len);
        for (size_t i = 0; i < list.count && !s->stop; i++) {
            size_t at = len, n = strnlen(list.names[i] + 1, NAME_LIMIT);
            if (at)
                w->path[at++] = '/';
            memcpy(w->path + at, list.names[i] + 1, n);
            if (find_between(s->index, w->path, at + n, (uint64_t)known + 1, s->index->count) < 0)
                visit_new(w, fd, len, list.names[i], false);
        }
        free_listing(&list);
    }
    return;
closed:
    close_quietly(fd);
    if (was_dir)
        push(w, below, -1, NULL, path, len);
}

/* The next missing ancestor at the start of a range: only opened here, its own walker reports on it. */
static void push_ancestor(walker_t *w, const uint8_t *path, size_t plen)
{
    scan_t *s = w->s;
    level_t *top = w->depth ? &w->levels[w->depth - 1] : NULL; /* none: the root itself is missing */
    size_t start = top && top->len ? top->len + 1 : 0, end = start;
    state_t state = top ? top->state : OPEN;
    struct stat st;
    int fd = -1;
    while (top && end < plen && path[end] != '/')
        end++;
    if (state == OPEN && (is_skipped(s, path, end) || end - start > NAME_LIMIT))
        state = KEPT;
    if (state == OPEN) {
        memcpy(w->name, path + start, end - start);
        w->name[end - start] = 0;
        fd = openat_again(top ? top->fd : s->root, top ? w->name : ".", O_DIRFD, 0);
        int64_t row = find_between(s->index, path, end, 0, s->index->count);
        if (fd < 0)
            state = errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? GONE : KEPT;
        else if (fstat(fd, &st) || on_other_device(s, &st) || (top && row >= 0 && s->index->rows[row].flags & GAP))
            state = KEPT;
        if (state != OPEN) {
            close_quietly(fd);
            fd = -1;
        }
    }
    if (s->look && state != OPEN && (!top || top->state == OPEN))
        s->torn = s->stop = true;
    push(w, state, fd, &st, path, end);
}

/* Rows [from, to) of the index, or of those to look at. A walker may start in the middle of a directory that another
 * one looks after. */
static void walk_known(walker_t *w, uint64_t from, uint64_t to)
{
    scan_t *s = w->s;
    const tree_t *t = s->index;
    struct stat st;
    for (uint64_t at = from; at < to && !s->stop; at++) {
        uint64_t i = s->look ? s->look[at] : at;
        const row_t *r = t->rows + i;
        const uint8_t *path = row_path(t, i);
        size_t len = r->path_len, plen = parent_len(path, len);
        if (i == 0) {
            if (is_skipped(s, path, 0))
                push(w, KEPT, -1, NULL, path, 0);
            else
                enter(w, s->root, ".", path, 0, 0, true);
            continue;
        }
        while (w->depth && !is_below(path, len, w->levels[w->depth - 1].path, w->levels[w->depth - 1].len))
            pop(w);
        while (!s->stop && (!w->depth || w->levels[w->depth - 1].len != plen))
            push_ancestor(w, path, plen);
        if (s->stop)
            break;
        level_t *top = &w->levels[w->depth - 1];
        state_t state = top->state;
        size_t start = plen ? plen + 1 : 0;
        if (state == GONE)
            s->gone[i] = 1;
        else if (state == OPEN && is_skipped(s, path, len))
            state = KEPT;
        if (state == OPEN && len - start > NAME_LIMIT) {
            problem(w, path, len, ENAMETOOLONG, r->kind == 'd');
            state = KEPT;
        }
        if (state != OPEN) {
            if (r->kind == 'd')
                push(w, state, -1, NULL, path, len);
            continue;
        }
        memcpy(w->name, path + start, len - start);
        w->name[len - start] = 0;
        if (r->flags & GAP && !fstatat(top->fd, w->name, &st, AT_ENTRY)) {
            /* What was left out on purpose is the caller's to look at again, unless something else is there now. */
            if (r->kind == kind_of(st.st_mode) || !is_accepted(s, path, len, S_ISDIR(st.st_mode))) {
                if (r->kind == 'd')
                    push(w, S_ISDIR(st.st_mode) ? KEPT : GONE, -1, NULL, path, len);
                continue;
            }
        }
        if (r->kind == 'd')
            enter(w, top->fd, w->name, path, len, (int64_t)i, true);
        else
            leaf(w, top->fd, w->name, path, len, (int64_t)i);
    }
    while (w->depth)
        pop(w);
}

/* A new directory and all that is in it, depth first and in order. */
static void walk_new(walker_t *w, const job_t *job)
{
    scan_t *s = w->s;
    struct stat st;
    memcpy(w->path, job->path, job->len);
    if (job->len == 0) {
        if (!is_skipped(s, w->path, 0))
            enter(w, s->root, ".", w->path, 0, -1, false);
    } else {
        size_t plen = parent_len(job->path, job->len), start = plen ? plen + 1 : 0;
        int fd = open_path(s->root, job->path, plen, O_DIRFD, 0);
        if (fd < 0 || fstat(fd, &st)) {
            if (job->known >= 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
                s->gone[job->known] = 1;
            else
                problem(w, job->path, job->len, errno, true);
            close_quietly(fd);
            return;
        }
        memcpy(w->name, job->path + start, job->len - start);
        w->name[job->len - start] = 0;
        if (push(w, OPEN, fd, &st, w->path, plen))
            enter(w, fd, w->name, w->path, job->len, job->known, false);
    }
    while (w->depth) {
        level_t *top = &w->levels[w->depth - 1];
        if (s->stop || top->state != OPEN || top->list.next == top->list.count)
            pop(w);
        else
            visit_new(w, top->fd, top->len, top->list.names[top->list.next++], true);
    }
}

void scan_worker(void *arg)
{
    walker_t *w = arg;
    scan_t *s = w->s;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        uint64_t end = s->look ? s->look_count : s->index->count;
        if (s->next_row < end) {
            /* less and less of it at a time, so that both are done at about the same moment */
            uint64_t from = s->next_row, share = (end - from) / 8, to = from + (share > s->chunk ? share : s->chunk);
            to = to < end ? to : end;
            s->next_row = to;
            s->busy++;
            pthread_mutex_unlock(&s->lock);
            walk_known(w, from, to);
        } else if (s->job_count) {
            job_t job = s->jobs[--s->job_count];
            s->queued--;
            s->busy++;
            pthread_mutex_unlock(&s->lock);
            walk_new(w, &job);
            free(job.path);
        } else if (s->busy) {
            pthread_cond_wait(&s->wake, &s->lock); /* a busy walker may still find new directories */
            continue;
        } else {
            break;
        }
        pthread_mutex_lock(&s->lock);
        s->busy--;
    }
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}
