/* Between packed rows and the Python values that stand for them: entries out of a tree, a tree out of entries.
 *
 * An entry is a tuple (of the class that the caller gives): kind, mode, uid, gid, size, mtime_s, mtime_ns, content,
 * is_chunked, target, xattrs, link, rdev, gap. A stat is a tuple: ino, dev, nlink, ctime_s, ctime_ns, is_racy.
 */
#include "_native.h"

enum { FIELDS = 14, STATS = 6 };

/* ---- out of a tree -------------------------------------------------------------------------------------------- */

/* Neighbours mostly have the same owner, mode and second: one number for all of them halves the memory of an entry. */
typedef struct {
    uint64_t value;
    PyObject *number;
} shared_t;

static PyObject *shared(shared_t *last, int64_t value)
{
    if (!last->number || last->value != (uint64_t)value) {
        PyObject *number = PyLong_FromLongLong(value);
        if (!number)
            return NULL;
        Py_XSETREF(last->number, number);
        last->value = (uint64_t)value;
    }
    return Py_NewRef(last->number);
}

static uint32_t number_at(const uint8_t **p, size_t width)
{
    uint32_t n = 0;
    memcpy(&n, *p, width);
    *p += width;
    return n;
}

/* Target, xattrs and gap of an extra that row_fault has found sound. */
static bool split_extra(const uint8_t *p, size_t len, PyObject *out[3])
{
    if (!len) {
        out[0] = PyBytes_FromStringAndSize(NULL, 0);
        out[1] = PyTuple_New(0);
        out[2] = PyUnicode_FromStringAndSize(NULL, 0);
        return out[0] && out[1] && out[2];
    }
    uint32_t n = number_at(&p, 4);
    out[0] = PyBytes_FromStringAndSize((const char *)p, n);
    p += n;
    uint32_t count = number_at(&p, 2);
    out[1] = PyTuple_New(count);
    for (uint32_t i = 0; out[1] && i < count; i++) {
        uint32_t name_len = number_at(&p, 2);
        const uint8_t *name = p;
        p += name_len;
        uint32_t value_len = number_at(&p, 4);
        PyObject *pair = Py_BuildValue("y#y#", name, (Py_ssize_t)name_len, p, (Py_ssize_t)value_len);
        p += value_len;
        if (!pair)
            return false;
        PyTuple_SET_ITEM(out[1], i, pair);
    }
    n = number_at(&p, 2);
    out[2] = PyUnicode_DecodeUTF8((const char *)p, n, NULL);
    return out[0] && out[1] && out[2];
}

static PyObject *make_entry(const tree_t *t, const row_t *r, PyTypeObject *type, shared_t memo[4])
{
    static const uint8_t none[32];
    bool is_file = r->kind == 'f', has_content = is_file && memcmp(r->content, none, 32);
    PyObject *e = type->tp_alloc(type, FIELDS), *extra[3] = {NULL, NULL, NULL};
    if (!e)
        return NULL;
    bool ok = split_extra(t->extras + r->extra_off, r->extra_len, extra);
    PyTuple_SET_ITEM(e, 0, PyBytes_FromStringAndSize((const char *)&r->kind, 1));
    PyTuple_SET_ITEM(e, 1, shared(&memo[0], r->mode));
    PyTuple_SET_ITEM(e, 2, shared(&memo[1], r->uid));
    PyTuple_SET_ITEM(e, 3, shared(&memo[2], r->gid));
    PyTuple_SET_ITEM(e, 4, PyLong_FromUnsignedLongLong(is_file ? r->size : 0));
    PyTuple_SET_ITEM(e, 5, shared(&memo[3], r->mtime_s));
    PyTuple_SET_ITEM(e, 6, PyLong_FromUnsignedLong(r->mtime_ns));
    PyTuple_SET_ITEM(e, 7, PyBytes_FromStringAndSize((const char *)r->content, has_content ? 32 : 0));
    PyTuple_SET_ITEM(e, 8, PyBool_FromLong(r->flags & CHUNKED));
    PyTuple_SET_ITEM(e, 9, extra[0]);
    PyTuple_SET_ITEM(e, 10, extra[1]);
    PyTuple_SET_ITEM(e, 11, PyLong_FromUnsignedLongLong(r->link));
    PyTuple_SET_ITEM(e, 12, PyLong_FromUnsignedLongLong(r->rdev));
    PyTuple_SET_ITEM(e, 13, extra[2]);
    for (int i = 0; i < FIELDS; i++)
        ok = ok && PyTuple_GET_ITEM(e, i);
    if (!ok)
        Py_CLEAR(e);
    return e;
}

PyObject *py_entries(PyObject *module, PyObject *args)
{
    PyObject *tree, *type, *out = NULL;
    Py_ssize_t first = 0, last = -1;
    Py_buffer view;
    tree_t t;
    shared_t memo[4] = {{0, NULL}};
    (void)module;
    if (!PyArg_ParseTuple(args, "OO|nn", &tree, &type, &first, &last))
        return NULL;
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "entries are made as tuples");
        return NULL;
    }
    if (!load(tree, &view, &t, false, false))
        return NULL;
    if (last < 0)
        last = (Py_ssize_t)t.count;
    if (first < 0 || first > last || (uint64_t)last > t.count)
        PyErr_SetString(PyExc_IndexError, "no such row");
    else
        out = PyList_New(last - first);
    for (Py_ssize_t i = first; out && i < last; i++) {
        const char *fault = row_fault(&t, (uint64_t)i);
        PyObject *entry = fault ? raise_fault(fault) : make_entry(&t, t.rows + i, (PyTypeObject *)type, memo);
        PyObject *path = entry ? PyBytes_FromStringAndSize((const char *)row_path(&t, (uint64_t)i), t.rows[i].path_len) : NULL;
        PyObject *pair = path ? PyTuple_Pack(2, path, entry) : NULL;
        Py_XDECREF(path);
        Py_XDECREF(entry);
        if (pair)
            PyList_SET_ITEM(out, i - first, pair);
        else
            Py_CLEAR(out);
    }
    for (int i = 0; i < 4; i++)
        Py_XDECREF(memo[i].number);
    PyBuffer_Release(&view);
    return out;
}

/* ---- into a tree ---------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *path, *entry, *stat;
    uint8_t flags;
    const char *gap;
    Py_ssize_t gap_len;
    size_t extra_len;
} source_t;

static int compare_sources(const void *a, const void *b)
{
    return compare_bytes(&((const source_t *)a)->path, &((const source_t *)b)->path);
}

static bool wrong(const char *what)
{
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, what);
    return false;
}

/* What an item is made of and how long its extra will be; nothing is kept that the item does not hold. */
static bool read_source(PyObject *item, source_t *s)
{
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 4)
        return wrong("pack takes (path, entry, stat, flags)");
    s->path = PyTuple_GET_ITEM(item, 0);
    s->entry = PyTuple_GET_ITEM(item, 1);
    s->stat = PyTuple_GET_ITEM(item, 2);
    long flags = PyLong_AsLong(PyTuple_GET_ITEM(item, 3));
    if (!PyBytes_Check(s->path) || !PyTuple_Check(s->entry) || PyTuple_GET_SIZE(s->entry) != FIELDS ||
        !PyTuple_Check(s->stat) || PyTuple_GET_SIZE(s->stat) != STATS || (flags == -1 && PyErr_Occurred()))
        return wrong("pack takes (path, entry, stat, flags)");
    s->flags = (uint8_t)flags;
    PyObject *target = PyTuple_GET_ITEM(s->entry, 9), *xattrs = PyTuple_GET_ITEM(s->entry, 10);
    if (!PyBytes_Check(target) || !PyTuple_Check(xattrs) || PyTuple_GET_SIZE(xattrs) > UINT16_MAX)
        return wrong("an entry has a target that is no bytes, or xattrs that are no tuple");
    s->gap = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(s->entry, 13), &s->gap_len);
    if (!s->gap)
        return false;
    if (PyBytes_GET_SIZE(s->path) > PATH_LIMIT || s->gap_len > UINT16_MAX || PyBytes_GET_SIZE(target) > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a path, a target or a reason is too long for a packed tree");
        return false;
    }
    s->extra_len = 0;
    if (!s->gap_len && !PyBytes_GET_SIZE(target) && !PyTuple_GET_SIZE(xattrs))
        return true;
    s->extra_len = 4 + (size_t)PyBytes_GET_SIZE(target) + 2 + 2 + (size_t)s->gap_len;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(xattrs); i++) {
        PyObject *pair = PyTuple_GET_ITEM(xattrs, i);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyBytes_Check(PyTuple_GET_ITEM(pair, 0)) ||
            !PyBytes_Check(PyTuple_GET_ITEM(pair, 1)))
            return wrong("an xattr is a pair of bytes");
        size_t name = (size_t)PyBytes_GET_SIZE(PyTuple_GET_ITEM(pair, 0)), value = (size_t)PyBytes_GET_SIZE(PyTuple_GET_ITEM(pair, 1));
        if (name > UINT16_MAX || value > UINT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "an xattr is too long for a packed tree");
            return false;
        }
        s->extra_len += 6 + name + value;
    }
    return true;
}

static uint8_t *put(uint8_t *p, const void *data, size_t len)
{
    memcpy(p, data, len);
    return p + len;
}

static uint8_t *put_sized(uint8_t *p, const void *data, size_t len, size_t width)
{
    uint32_t n = (uint32_t)len;
    return put(put(p, &n, width), data, len);
}

static void fill_extra(const source_t *s, uint8_t *p)
{
    PyObject *target = PyTuple_GET_ITEM(s->entry, 9), *xattrs = PyTuple_GET_ITEM(s->entry, 10);
    uint16_t count = (uint16_t)PyTuple_GET_SIZE(xattrs);
    p = put(put_sized(p, PyBytes_AS_STRING(target), (size_t)PyBytes_GET_SIZE(target), 4), &count, 2);
    for (uint16_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GET_ITEM(xattrs, i), *name = PyTuple_GET_ITEM(pair, 0), *value = PyTuple_GET_ITEM(pair, 1);
        p = put_sized(p, PyBytes_AS_STRING(name), (size_t)PyBytes_GET_SIZE(name), 2);
        p = put_sized(p, PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value), 4);
    }
    put_sized(p, s->gap, (size_t)s->gap_len, 2);
}

/* An unsigned field of at most `most`; on error the exception is set and 0 returned. */
static uint64_t unsigned_at(PyObject *tuple, Py_ssize_t i, uint64_t most)
{
    if (PyErr_Occurred())
        return 0;
    uint64_t value = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(tuple, i));
    if (value > most && !PyErr_Occurred())
        PyErr_SetString(PyExc_OverflowError, "a number is too large for a packed tree");
    return value;
}

static int64_t signed_at(PyObject *tuple, Py_ssize_t i)
{
    return PyErr_Occurred() ? 0 : PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
}

static bool fill_from(const source_t *s, row_t *r)
{
    PyObject *e = s->entry, *st = s->stat, *kind = PyTuple_GET_ITEM(e, 0), *content = PyTuple_GET_ITEM(e, 7);
    if (!PyBytes_Check(kind) || PyBytes_GET_SIZE(kind) != 1 || !PyBytes_Check(content) ||
        (PyBytes_GET_SIZE(content) != 0 && PyBytes_GET_SIZE(content) != 32))
        return wrong("an entry has a kind of one byte and a content of 32 or none");
    int chunked = PyObject_IsTrue(PyTuple_GET_ITEM(e, 8)), racy = PyObject_IsTrue(PyTuple_GET_ITEM(st, 5));
    if (chunked < 0 || racy < 0)
        return false;
    memset(r, 0, sizeof *r);
    r->kind = (uint8_t)PyBytes_AS_STRING(kind)[0];
    r->flags = (uint8_t)(s->flags | (chunked ? CHUNKED : 0) | (s->gap_len ? GAP : 0) | (racy ? RACY : 0));
    r->mode = (uint32_t)unsigned_at(e, 1, UINT32_MAX);
    r->uid = (uint32_t)unsigned_at(e, 2, UINT32_MAX);
    r->gid = (uint32_t)unsigned_at(e, 3, UINT32_MAX);
    r->size = unsigned_at(e, 4, UINT64_MAX);
    r->mtime_s = signed_at(e, 5);
    r->mtime_ns = (uint32_t)unsigned_at(e, 6, UINT32_MAX);
    memcpy(r->content, PyBytes_AS_STRING(content), (size_t)PyBytes_GET_SIZE(content));
    r->link = unsigned_at(e, 11, UINT64_MAX);
    r->rdev = unsigned_at(e, 12, UINT64_MAX);
    r->ino = unsigned_at(st, 0, UINT64_MAX);
    r->dev = unsigned_at(st, 1, UINT64_MAX);
    r->nlink = (uint32_t)unsigned_at(st, 2, UINT32_MAX);
    r->ctime_s = signed_at(st, 3);
    r->ctime_ns = (uint32_t)unsigned_at(st, 4, UINT32_MAX);
    return !PyErr_Occurred();
}

static PyObject *pack_sources(source_t *sources, size_t n, const void *tag)
{
    uint64_t paths = 0, extras = 0;
    tree_t t;
    bool in_order = true;
    for (size_t i = 0; i < n; i++) {
        paths += (uint64_t)PyBytes_GET_SIZE(sources[i].path);
        extras += sources[i].extra_len;
        in_order = in_order && (!i || compare_sources(&sources[i - 1], &sources[i]) < 0);
    }
    if (!in_order)
        qsort(sources, n, sizeof *sources, compare_sources);
    for (size_t i = 1; !in_order && i < n; i++)
        if (!compare_sources(&sources[i - 1], &sources[i]))
            return PyErr_Format(PyExc_ValueError, "two entries at %R", sources[i].path);
    PyObject *out = new_tree(&t, n, paths, extras, tag);
    paths = extras = 0;
    for (size_t i = 0; out && i < n; i++) {
        const source_t *s = &sources[i];
        row_t *r = t.rows + i;
        if (!fill_from(s, r)) {
            Py_CLEAR(out);
            break;
        }
        r->path_off = (uint32_t)paths;
        r->path_len = (uint16_t)PyBytes_GET_SIZE(s->path);
        memcpy((uint8_t *)t.paths + paths, PyBytes_AS_STRING(s->path), r->path_len);
        paths += r->path_len;
        r->extra_len = (uint32_t)s->extra_len;
        r->extra_off = s->extra_len ? (uint32_t)extras : 0;
        if (s->extra_len)
            fill_extra(s, (uint8_t *)t.extras + extras);
        extras += s->extra_len;
    }
    if (out)
        seal(out);
    return out;
}

PyObject *py_pack(PyObject *module, PyObject *args)
{
    PyObject *items, *out = NULL;
    Py_buffer tag;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oy*", &items, &tag))
        return NULL;
    PyObject *list = tag.len == 16 ? PySequence_Tuple(items) : NULL; /* holds what the sources point to */
    if (tag.len != 16)
        PyErr_SetString(PyExc_ValueError, "tag must be 16 bytes");
    size_t n = list ? (size_t)PyTuple_GET_SIZE(list) : 0, i = 0;
    source_t *sources = list ? calloc(n + 1, sizeof *sources) : NULL;
    if (list && !sources)
        PyErr_NoMemory();
    while (sources && i < n && read_source(PyTuple_GET_ITEM(list, (Py_ssize_t)i), &sources[i]))
        i++;
    if (sources && i == n)
        out = pack_sources(sources, n, tag.buf);
    free(sources);
    Py_XDECREF(list);
    PyBuffer_Release(&tag);
    return out;
}
