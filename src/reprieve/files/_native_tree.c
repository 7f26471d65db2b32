/* Packed trees: open them without trust, look things up, put new ones together. */
#include "_native.h"

/* The header and the lengths it claims; rows are looked at by row_fault. */
const char *tree_open(tree_t *t, const void *buf, size_t len)
{
    const header_t *h = buf;
    if (len < HEADER || memcmp(h->magic, "RPTREE01", 8) || h->zero || h->zero2)
        return "not a packed tree";
    size_t rest = len - HEADER;
    if (h->count > rest / sizeof(row_t) || h->paths_len > rest || h->extra_len > rest ||
        h->count * sizeof(row_t) + h->paths_len + h->extra_len != rest)
        return "packed tree has the wrong length";
    t->count = h->count;
    t->paths_len = h->paths_len;
    t->extra_len = h->extra_len;
    t->rows = (row_t *)((uint8_t *)buf + HEADER);
    t->paths = (const uint8_t *)(t->rows + t->count);
    t->extras = t->paths + t->paths_len;
    return NULL;
}

/* Takes `n` bytes off an extra; false when it is too short. */
static bool take(size_t *left, const uint8_t **p, uint64_t n)
{
    if (n > *left)
        return false;
    *p += n;
    *left -= n;
    return true;
}

static bool take_sized(size_t *left, const uint8_t **p, size_t width)
{
    uint32_t n = 0;
    if (*left < width)
        return false;
    memcpy(&n, *p, width);
    return take(left, p, width) && take(left, p, n);
}

static bool extra_ok(const uint8_t *p, size_t left)
{
    uint16_t n;
    if (left == 0)
        return true;
    if (!take_sized(&left, &p, 4) || left < 2)
        return false;
    memcpy(&n, p, 2);
    take(&left, &p, 2);
    for (; n; n--)
        if (!take_sized(&left, &p, 2) || !take_sized(&left, &p, 4))
            return false;
    return take_sized(&left, &p, 2) && left == 0;
}

const char *row_fault(const tree_t *t, uint64_t i)
{
    const row_t *r = t->rows + i;
    if ((uint64_t)r->path_off + r->path_len > t->paths_len || (uint64_t)r->extra_off + r->extra_len > t->extra_len)
        return "packed tree: a row points outside";
    if (!r->kind || !strchr("fdlpscb", r->kind) || r->flags > 15 || r->mode > 07777 || r->mtime_ns > 999999999 ||
        r->ctime_ns > 999999999 || (r->path_len == 0 && r->kind != 'd'))
        return "packed tree: a row has an impossible value";
    if (r->extra_len && !extra_ok(t->extras + r->extra_off, r->extra_len))
        return "packed tree: an extra is malformed";
    return NULL;
}

/* Every row, and their order. `whole`: each row's directory must be there too, as in an index. */
const char *tree_fault(const tree_t *t, bool whole)
{
    const char *fault = NULL;
    uint16_t *dirs = whole ? malloc(sizeof *dirs * (PATH_LIMIT / 2 + 2)) : NULL; /* lengths of the open directories */
    size_t depth = 0;
    if (whole && !dirs)
        return "";
    for (uint64_t i = 0; i < t->count && !fault; i++) {
        if ((fault = row_fault(t, i)))
            break;
        const uint8_t *p = row_path(t, i);
        size_t len = t->rows[i].path_len, common = 0;
        if (i) {
            size_t plen = t->rows[i - 1].path_len;
            const uint8_t *prev = row_path(t, i - 1);
            common = common_prefix(prev, p, plen < len ? plen : len);
            if (path_order(prev, plen, p, len, common) >= 0)
                fault = "packed tree: rows are not in order";
        }
        size_t from = common; /* what it shares with the row before is known to be clean */
        while (from && p[from - 1] != '/')
            from--;
        if (!path_clean(p, len, from))
            fault = "packed tree: a path is malformed";
        if (whole && !fault) {
            while (depth && (len == 0 || !(dirs[depth - 1] == 0 || (common >= dirs[depth - 1] && p[dirs[depth - 1]] == '/'))))
                depth--;
            if (len && (!depth || dirs[depth - 1] != parent_len(p, len)))
                fault = "packed tree: a row without its directory";
            if (t->rows[i].kind == 'd')
                dirs[depth++] = (uint16_t)len;
        }
    }
    free(dirs);
    return fault;
}

PyObject *raise_fault(const char *fault)
{
    if (!*fault)
        return PyErr_NoMemory();
    PyErr_SetString(PyExc_ValueError, fault);
    return NULL;
}

/* Opens `obj` as a packed tree; `deep` looks at every row. None gives an empty tree. */
bool load(PyObject *obj, Py_buffer *view, tree_t *t, bool deep, bool whole)
{
    memset(t, 0, sizeof *t);
    memset(view, 0, sizeof *view);
    if (obj == Py_None)
        return true;
    if (PyObject_GetBuffer(obj, view, PyBUF_SIMPLE) < 0)
        return false;
    const char *fault = tree_open(t, view->buf, (size_t)view->len);
    if (!fault && deep)
        fault = tree_fault(t, whole);
    if (fault) {
        PyBuffer_Release(view);
        raise_fault(fault);
    }
    return !fault;
}

/* Row of `path` among rows [lo, hi), or -1; the rows must have been checked. */
int64_t find_between(const tree_t *t, const uint8_t *path, size_t len, uint64_t lo, uint64_t hi)
{
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int c = path_cmp(row_path(t, mid), t->rows[mid].path_len, path, len);
        if (c == 0)
            return (int64_t)mid;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

/* A new packed tree with room for the given parts; the caller fills rows, paths and extras, then calls seal. */
PyObject *new_tree(tree_t *t, uint64_t count, uint64_t paths_len, uint64_t extra_len, const void *tag)
{
    if (paths_len > UINT32_MAX || extra_len > UINT32_MAX || count > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "tree too large for one packed tree");
        return NULL;
    }
    uint64_t total = HEADER + count * sizeof(row_t) + paths_len + extra_len;
    PyObject *out = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (!out)
        return NULL;
    header_t *h = (header_t *)PyByteArray_AS_STRING(out);
    memset(h, 0, HEADER);
    memcpy(h->magic, "RPTREE01", 8);
    h->count = count;
    h->paths_len = paths_len;
    h->extra_len = extra_len;
    if (tag)
        memcpy(h->tag, tag, 16);
    tree_open(t, h, total);
    return out;
}

void seal(PyObject *tree)
{
    uint8_t *p = (uint8_t *)PyByteArray_AS_STRING(tree);
    ((header_t *)p)->crc = crc32_of(p + HEADER, (size_t)PyByteArray_GET_SIZE(tree) - HEADER);
}

/* ---- merge, find, get, check, diff ----------------------------------------------------------------------------- */

static void copy_row(tree_t *out, uint64_t *n, uint64_t *paths, uint64_t *extras, const tree_t *from, uint64_t i, const void *extra,
                     size_t extra_len)
{
    row_t *r = &out->rows[(*n)++];
    *r = from->rows[i];
    memcpy((uint8_t *)out->paths + *paths, row_path(from, i), r->path_len);
    r->path_off = (uint32_t)*paths;
    *paths += r->path_len;
    r->extra_len = (uint32_t)extra_len;
    r->extra_off = extra_len ? (uint32_t)*extras : 0;
    if (extra_len)
        memcpy((uint8_t *)out->extras + *extras, extra, extra_len);
    *extras += extra_len;
}

/* Walks index, rows and gone side by side. With out == NULL it only adds up the sizes. */
static void merge_pass(const tree_t *a, const tree_t *b, PyObject *gone, PyObject **extra_of, tree_t *out, uint64_t size[3])
{
    uint64_t i = 0, j = 0, n = 0, paths = 0, extras = 0;
    int64_t dropped = -1; /* row of a directory in the index that is one no more: its subtree goes with it */
    Py_ssize_t g = 0, gone_count = PyList_GET_SIZE(gone);
    while (i < a->count || j < b->count) {
        int c = i == a->count   ? 1
                : j == b->count ? -1
                                : path_cmp(row_path(a, i), a->rows[i].path_len, row_path(b, j), b->rows[j].path_len);
        const tree_t *from = c < 0 ? a : b;
        uint64_t at = c < 0 ? i : j;
        if (c <= 0) {
            const uint8_t *path = row_path(a, i);
            size_t len = a->rows[i].path_len;
            int d = 1;
            while (g < gone_count) {
                PyObject *item = PyList_GET_ITEM(gone, g);
                d = path_cmp((uint8_t *)PyBytes_AS_STRING(item), (size_t)PyBytes_GET_SIZE(item), path, len);
                if (d >= 0)
                    break;
                g++;
            }
            bool is_gone = g < gone_count && d == 0;
            if (dropped >= 0 && is_below(path, len, row_path(a, (uint64_t)dropped), a->rows[dropped].path_len))
                is_gone = true;
            else if (is_gone || (c == 0 && b->rows[j].kind != 'd'))
                dropped = (int64_t)i;
            i++;
            if (c < 0 && is_gone)
                continue;
        }
        j += c >= 0;
        const uint8_t *extra = from->extras + from->rows[at].extra_off;
        size_t extra_len = from->rows[at].extra_len;
        if (c >= 0 && extra_of[at]) {
            extra = (const uint8_t *)PyBytes_AS_STRING(extra_of[at]);
            extra_len = (size_t)PyBytes_GET_SIZE(extra_of[at]);
        }
        if (out) {
            copy_row(out, &n, &paths, &extras, from, at, extra, extra_len);
        } else {
            n++;
            paths += from->rows[at].path_len;
            extras += extra_len;
        }
    }
    size[0] = n;
    size[1] = paths;
    size[2] = extras;
}

int compare_bytes(const void *a, const void *b)
{
    PyObject *x = *(PyObject *const *)a, *y = *(PyObject *const *)b;
    return path_cmp((uint8_t *)PyBytes_AS_STRING(x), (size_t)PyBytes_GET_SIZE(x), (uint8_t *)PyBytes_AS_STRING(y),
                    (size_t)PyBytes_GET_SIZE(y));
}

/* gone as a sorted list of bytes; scan's own answer is in order already. */
static PyObject *sorted_gone(PyObject *gone)
{
    PyObject *list = gone ? PySequence_List(gone) : PyList_New(0);
    bool in_order = true;
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
        PyObject **items = ((PyListObject *)list)->ob_item;
        if (!PyBytes_Check(items[i])) {
            PyErr_SetString(PyExc_TypeError, "gone must hold bytes");
            Py_CLEAR(list);
        } else if (i && compare_bytes(&items[i - 1], &items[i]) > 0) {
            in_order = false;
        }
    }
    if (list && !in_order)
        qsort(((PyListObject *)list)->ob_item, (size_t)PyList_GET_SIZE(list), sizeof(PyObject *), compare_bytes);
    return list;
}

static bool read_extras(PyObject *extras, uint64_t count, PyObject **extra_of)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    if (!extras || extras == Py_None)
        return true;
    if (!PyDict_Check(extras)) {
        PyErr_SetString(PyExc_TypeError, "extras must be a dict of row: bytes");
        return false;
    }
    while (PyDict_Next(extras, &pos, &key, &value)) {
        Py_ssize_t row = PyLong_AsSsize_t(key);
        if (row == -1 && PyErr_Occurred())
            return false;
        if (row < 0 || (uint64_t)row >= count) {
            PyErr_SetString(PyExc_ValueError, "extras: no such row");
            return false;
        }
        if (!PyBytes_Check(value)) {
            PyErr_SetString(PyExc_TypeError, "extras must be a dict of row: bytes");
            return false;
        }
        if (!extra_ok((const uint8_t *)PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value))) {
            raise_fault("packed tree: an extra is malformed");
            return false;
        }
        extra_of[row] = value;
    }
    return true;
}

PyObject *py_merge(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"index", "rows", "gone", "extras", "tag", NULL};
    PyObject *index, *rows, *gone = NULL, *extras = NULL, *out = NULL, *list = NULL, **extra_of = NULL;
    Py_buffer a_view, b_view, tag = {0};
    tree_t a, b, o;
    uint64_t size[3];
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOy*", names, &index, &rows, &gone, &extras, &tag))
        return NULL;
    if (tag.len != 16) {
        PyErr_SetString(PyExc_ValueError, "tag must be 16 bytes");
        PyBuffer_Release(&tag);
        return NULL;
    }
    if (load(index, &a_view, &a, true, false)) {
        if (load(rows, &b_view, &b, true, false)) {
            list = sorted_gone(gone);
            extra_of = calloc(b.count + 1, sizeof *extra_of);
            if (!extra_of)
                PyErr_NoMemory();
            else if (list && read_extras(extras, b.count, extra_of)) {
                merge_pass(&a, &b, list, extra_of, NULL, size);
                out = new_tree(&o, size[0], size[1], size[2], tag.buf);
                if (out) {
                    merge_pass(&a, &b, list, extra_of, &o, size);
                    seal(out);
                }
            }
            free(extra_of);
            Py_XDECREF(list);
            PyBuffer_Release(&b_view);
        }
        PyBuffer_Release(&a_view);
    }
    PyBuffer_Release(&tag);
    return out;
}

/* Row of `path`, or -1; the rows need not have been checked, as they are for find_between. */
static Py_ssize_t find_row(const tree_t *t, const uint8_t *path, size_t len, const char **fault)
{
    uint64_t lo = 0, hi = t->count;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if ((*fault = row_fault(t, mid)))
            break;
        int c = path_cmp(row_path(t, mid), t->rows[mid].path_len, path, len);
        if (c == 0)
            return (Py_ssize_t)mid;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

PyObject *py_find(PyObject *module, PyObject *args)
{
    PyObject *obj;
    Py_buffer view, path;
    tree_t t;
    const char *fault = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oy*", &obj, &path))
        return NULL;
    if (!load(obj, &view, &t, false, false)) {
        PyBuffer_Release(&path);
        return NULL;
    }
    Py_ssize_t found = find_row(&t, path.buf, (size_t)path.len, &fault);
    PyBuffer_Release(&view);
    PyBuffer_Release(&path);
    return fault ? raise_fault(fault) : PyLong_FromSsize_t(found);
}

PyObject *py_orphans(PyObject *module, PyObject *args)
{
    PyObject *obj, *some, *out = NULL;
    Py_buffer view, rows_view;
    tree_t t, rows;
    const char *fault = NULL;
    const uint8_t *last = NULL; /* the directory that was found last: neighbours share it */
    size_t last_len = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &obj, &some) || !load(obj, &view, &t, false, false))
        return NULL;
    if (load(some, &rows_view, &rows, false, false)) {
        out = PyList_New(0);
        for (uint64_t i = 0; out && !fault && i < rows.count; i++) {
            if ((fault = row_fault(&rows, i)))
                break;
            const uint8_t *path = row_path(&rows, i);
            size_t len = parent_len(path, rows.rows[i].path_len);
            if (last && len == last_len && !memcmp(path, last, len))
                continue;
            Py_ssize_t at = find_row(&t, path, len, &fault);
            if (at >= 0 && t.rows[at].kind == 'd') {
                last = path;
                last_len = len;
            } else if (!fault) {
                PyObject *orphan = PyBytes_FromStringAndSize((const char *)path, rows.rows[i].path_len);
                if (!orphan || PyList_Append(out, orphan) < 0)
                    Py_CLEAR(out);
                Py_XDECREF(orphan);
            }
        }
        PyBuffer_Release(&rows_view);
    }
    PyBuffer_Release(&view);
    if (fault) {
        Py_CLEAR(out);
        return raise_fault(fault);
    }
    return out;
}

PyObject *py_totals(PyObject *module, PyObject *args)
{
    PyObject *obj;
    Py_buffer view;
    tree_t t;
    unsigned long long names = 0, bytes = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "O", &obj) || !load(obj, &view, &t, false, false))
        return NULL;
    for (uint64_t i = 0; i < t.count; i++) {
        names += t.rows[i].kind != 'd';
        bytes += t.rows[i].kind == 'f' ? t.rows[i].size : 0;
    }
    PyBuffer_Release(&view);
    return Py_BuildValue("KK", names, bytes);
}

PyObject *py_rows_with(PyObject *module, PyObject *args)
{
    PyObject *obj, *found;
    const char *kinds = "";
    Py_ssize_t kind_count = 0;
    unsigned char flags, is_picked[256] = {0};
    int linked = 0;
    Py_buffer view;
    tree_t t;
    (void)module;
    if (!PyArg_ParseTuple(args, "Ob|y#p", &obj, &flags, &kinds, &kind_count, &linked))
        return NULL;
    if (!load(obj, &view, &t, false, false))
        return NULL;
    for (Py_ssize_t i = 0; i < kind_count; i++)
        is_picked[(unsigned char)kinds[i]] = 1;
    uint64_t n = 0, at = 0;
    for (uint64_t i = 0; i < t.count; i++) {
        const row_t *r = t.rows + i;
        n += (r->flags & flags) || is_picked[r->kind] || (linked && r->kind != 'd' && r->nlink != 1);
    }
    if ((found = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n * 4))) {
        uint32_t *numbers = (uint32_t *)PyBytes_AS_STRING(found);
        for (uint64_t i = 0; at < n && i < t.count; i++) {
            const row_t *r = t.rows + i;
            if ((r->flags & flags) || is_picked[r->kind] || (linked && r->kind != 'd' && r->nlink != 1))
                numbers[at++] = (uint32_t)i;
        }
    }
    PyBuffer_Release(&view);
    return found;
}

PyObject *py_has_end(PyObject *module, PyObject *args)
{
    PyObject *obj, *ends;
    Py_buffer view;
    tree_t t;
    bool found = false;
    const char *fault = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!", &obj, &PyTuple_Type, &ends))
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(ends);
    for (Py_ssize_t k = 0; k < n; k++)
        if (!PyBytes_Check(PyTuple_GET_ITEM(ends, k)))
            return PyErr_Format(PyExc_TypeError, "ends must be bytes");
    if (!load(obj, &view, &t, false, false))
        return NULL;
    for (uint64_t i = 0; i < t.count && !found && !(fault = row_fault(&t, i)); i++) {
        const row_t *r = t.rows + i;
        const uint8_t *last = t.paths + r->path_off + r->path_len;
        for (Py_ssize_t k = 0; k < n && !found; k++) {
            size_t len = (size_t)PyBytes_GET_SIZE(PyTuple_GET_ITEM(ends, k));
            found = len <= r->path_len && !memcmp(last - len, PyBytes_AS_STRING(PyTuple_GET_ITEM(ends, k)), len);
        }
    }
    PyBuffer_Release(&view);
    return fault ? raise_fault(fault) : PyBool_FromLong(found);
}

PyObject *py_get(PyObject *module, PyObject *args)
{
    PyObject *obj, *out = NULL;
    Py_ssize_t i;
    Py_buffer view;
    tree_t t;
    static const uint8_t none[32];
    (void)module;
    if (!PyArg_ParseTuple(args, "On", &obj, &i) || !load(obj, &view, &t, false, false))
        return NULL;
    if (i < 0 || (uint64_t)i >= t.count) {
        PyErr_SetString(PyExc_IndexError, "no such row");
    } else {
        const row_t r = t.rows[i];
        const char *fault = row_fault(&t, (uint64_t)i);
        if (fault)
            raise_fault(fault);
        else
            out = Py_BuildValue("(y#y#IIIKLIy#BKKy#KLIIK)", row_path(&t, (uint64_t)i), (Py_ssize_t)r.path_len, &r.kind,
                                (Py_ssize_t)1, r.mode, r.uid, r.gid, (unsigned long long)r.size, (long long)r.mtime_s,
                                r.mtime_ns, r.content, (Py_ssize_t)(memcmp(r.content, none, 32) ? 32 : 0), r.flags,
                                (unsigned long long)r.link, (unsigned long long)r.rdev, t.extras + r.extra_off,
                                (Py_ssize_t)r.extra_len, (unsigned long long)r.ino, (long long)r.ctime_s, r.ctime_ns,
                                r.nlink, (unsigned long long)r.dev);
    }
    PyBuffer_Release(&view);
    return out;
}

PyObject *py_check(PyObject *module, PyObject *obj)
{
    Py_buffer view;
    tree_t t;
    (void)module;
    if (PyObject_GetBuffer(obj, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const char *fault = tree_open(&t, view.buf, (size_t)view.len);
    if (!fault && ((header_t *)view.buf)->crc != crc32_of((uint8_t *)view.buf + HEADER, (size_t)view.len - HEADER))
        fault = "packed tree: checksum differs";
    if (!fault)
        fault = tree_fault(&t, false);
    PyBuffer_Release(&view);
    if (fault)
        return raise_fault(fault);
    Py_RETURN_NONE;
}

static bool rows_differ(const tree_t *ta, const row_t *a, const tree_t *tb, const row_t *b)
{
    const uint8_t held = CHUNKED | GAP;
    return a->kind != b->kind || a->mode != b->mode || a->uid != b->uid || a->gid != b->gid || a->size != b->size ||
           a->mtime_s != b->mtime_s || a->mtime_ns != b->mtime_ns || memcmp(a->content, b->content, 32) ||
           (a->flags & held) != (b->flags & held) || (a->flags | b->flags) & NEEDS || a->link != b->link ||
           a->rdev != b->rdev || a->extra_len != b->extra_len ||
           memcmp(ta->extras + a->extra_off, tb->extras + b->extra_off, a->extra_len);
}

PyObject *py_diff(PyObject *module, PyObject *args)
{
    PyObject *x, *y, *out = NULL;
    Py_buffer a_view, b_view;
    tree_t a, b;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &x, &y) || !load(x, &a_view, &a, true, false))
        return NULL;
    if (load(y, &b_view, &b, true, false)) {
        uint64_t i = 0, j = 0;
        out = PyList_New(0);
        while (out && (i < a.count || j < b.count)) {
            int c = i == a.count   ? 1
                    : j == b.count ? -1
                                   : path_cmp(row_path(&a, i), a.rows[i].path_len, row_path(&b, j), b.rows[j].path_len);
            if (c || rows_differ(&a, a.rows + i, &b, b.rows + j)) {
                PyObject *pair = Py_BuildValue("nn", c > 0 ? -1 : (Py_ssize_t)i, c < 0 ? -1 : (Py_ssize_t)j);
                if (!pair || PyList_Append(out, pair) < 0)
                    Py_CLEAR(out);
                Py_XDECREF(pair);
            }
            i += c <= 0;
            j += c >= 0;
        }
        PyBuffer_Release(&b_view);
    }
    PyBuffer_Release(&a_view);
    return out;
}
