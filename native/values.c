/* Values of each kind, and the parts of records and structs: reading, stepping over, writing. */

#include "native.h"

#define BLOB_MARK 0x7F          /* in the place of a length: an id and a size follow */
#define BLOB_ID_SIZE 16
#define ESCAPED_ZERO 0xFF       /* what follows a zero that belongs to an escaped text … */
#define ESCAPED_END 0x01        /* … and one that ends it */

static int
may_be_blob(const Value *v)
{
    return v->encode == NULL;
}

/* ---- by Python's own functions -------------------------------------------------------------- */

static int
move_to(Reader *r, PyObject *position)
{
    Py_ssize_t at = PyLong_AsSsize_t(position);
    if (at <= r->at - r->start || at > r->end - r->start) {
        return 0;
    }
    r->at = r->start + at;
    return 1;
}

static PyObject *
call_at(Reader *r, PyObject *function)
{
    PyObject *position = PyLong_FromSsize_t(r->at - r->start);
    if (position == NULL) {
        return NULL;
    }
    PyObject *args[2] = {r->data, position};
    PyObject *result = PyObject_Vectorcall(function, args, 2, NULL);
    Py_DECREF(position);
    return result;
}

static PyObject *
read_in_python(Reader *r, const Value *v)
{
    PyObject *value = NULL, *pair = call_at(r, v->decode);
    if (pair != NULL && PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2
        && move_to(r, PyTuple_GET_ITEM(pair, 1))) {
        value = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
    }
    Py_XDECREF(pair);
    return value;
}

static int
skip_in_python(Reader *r, const Value *v)
{
    PyObject *position = call_at(r, v->skip);
    int is_done = position != NULL && move_to(r, position);
    Py_XDECREF(position);
    return is_done;
}

static int
write_in_python(Writer *w, const Value *v, PyObject *value)
{
    PyObject *bytes = PyObject_CallOneArg(v->encode, value);
    int is_done = bytes != NULL && PyBytes_CheckExact(bytes)
                  && zap_write_bytes(w, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
    Py_XDECREF(bytes);
    return is_done;
}

/* ---- reading -------------------------------------------------------------------------------- */

static PyObject *
read_integer(Reader *r, const Value *v)
{
    const uint8_t *start = r->at;
    int64_t number;
    int is_unsigned;
    if (zap_read_varint(r, &number, &is_unsigned)) {
        switch (v->kind) {
            case ZAP_INTEGER:
                return is_unsigned ? PyLong_FromUnsignedLongLong((uint64_t)number)
                                   : PyLong_FromLongLong(number);
            case ZAP_DECIMAL:
                if (!is_unsigned) {
                    return zap_read_decimal(v, number);
                }
                break;
            case ZAP_DATE:
                return is_unsigned ? NULL : zap_read_date(r->state, number);
            default: {
                PyObject *id = is_unsigned ? NULL : PyLong_FromLongLong(number);
                PyObject *name = id == NULL ? NULL : PyDict_GetItemWithError(v->first, id);
                Py_XDECREF(id);
                return Py_XNewRef(name);
            }
        }
    }
    r->at = start;
    return read_in_python(r, v);
}

static PyObject *
make_text(Kind kind, const uint8_t *bytes, Py_ssize_t size)
{
    if (kind == ZAP_BINARY || kind == ZAP_ESCAPED_BINARY) {
        return PyBytes_FromStringAndSize((const char *)bytes, size);
    }
    return zap_text(bytes, size);
}

static PyObject *
read_text(Reader *r, const Value *v)
{
    Reader inside;
    if (may_be_blob(v) && zap_left(r) > 0 && *r->at == BLOB_MARK) {
        r->has_blob = 1;
        return read_in_python(r, v);
    }
    if (!zap_read_extent(r, v->number, &inside)) {
        return NULL;
    }
    return make_text(v->kind, inside.at, zap_left(&inside));
}

static PyObject *
read_escaped(Reader *r, Kind kind)
{
    Py_ssize_t zeros = 0;
    const uint8_t *start = r->at, *p = start;
    for (;; p += 2, zeros++) {
        p = p < r->end ? memchr(p, 0, r->end - p) : NULL;
        if (p == NULL || r->end - p < 2 || (p[1] != ESCAPED_END && p[1] != ESCAPED_ZERO)) {
            return NULL;
        }
        if (p[1] == ESCAPED_END) {
            break;
        }
    }
    r->at = p + 2;
    if (zeros == 0) {
        return make_text(kind, start, p - start);
    }
    Py_ssize_t size = p - start - zeros;
    uint8_t *bytes = PyMem_Malloc((size_t)size), *q = bytes;
    if (bytes == NULL) {
        return PyErr_NoMemory();
    }
    for (const uint8_t *from = start; from < p; from += *from ? 1 : 2) {
        *q++ = *from;
    }
    PyObject *value = make_text(kind, bytes, size);
    PyMem_Free(bytes);
    return value;
}

static PyObject *
read_json(Reader *r)
{
    Reader inside;
    if (!zap_read_extent(r, ZAP_VALUE_MAX, &inside)) {
        return NULL;
    }
    PyObject *value = zap_read_cbor(&inside, ZAP_DEPTH_MAX);
    if (value != NULL && inside.at != inside.end) {
        Py_CLEAR(value);
    }
    return value;
}

static PyObject *
read_list(Reader *r, const Value *v)
{
    Reader inside;
    PyObject *list = zap_read_extent(r, ZAP_VALUE_MAX, &inside) ? PyList_New(0) : NULL;
    while (list != NULL && inside.at < inside.end) {
        PyObject *item = zap_read_value(&inside, &v->parts.fields[0].value);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *
read_struct(Reader *r, const Value *v)
{
    Reader inside;
    PyTypeObject *type = v->parts.type;
    PyObject *value = zap_read_extent(r, ZAP_VALUE_MAX, &inside) ? type->tp_alloc(type, 0) : NULL;
    if (value != NULL
        && (!zap_read_parts(&inside, &v->parts, v->parts.count, value)
            || inside.at != inside.end)) {
        Py_CLEAR(value);
    }
    return value;
}

/* The key of another record: its one value, or a tuple. */
static PyObject *
read_key(Reader *r, const Value *v)
{
    const uint8_t *start = r->at;
    Py_ssize_t count = v->parts.count;
    PyObject *key = count == 1 ? zap_read_value(r, &v->parts.fields[0].value)
                               : PyTuple_New(count);
    for (Py_ssize_t i = 0; key != NULL && count > 1 && i < count; i++) {
        PyObject *part = zap_read_value(r, &v->parts.fields[i].value);
        if (part == NULL) {
            Py_CLEAR(key);
            break;
        }
        PyTuple_SET_ITEM(key, i, part);
    }
    if (key != NULL && r->at - start > ZAP_KEY_MAX) {
        Py_CLEAR(key);
    }
    return key;
}

PyObject *
zap_read_value(Reader *r, const Value *v)
{
    switch (v->kind) {
        case ZAP_INTEGER:
        case ZAP_DECIMAL:
        case ZAP_DATE:
        case ZAP_ENUM:
            return read_integer(r, v);
        case ZAP_BOOLEAN:
            if (zap_left(r) == 0 || *r->at > 1) {
                return NULL;
            }
            return Py_NewRef(*r->at++ ? Py_True : Py_False);
        case ZAP_STRING:
        case ZAP_BINARY:
            return read_text(r, v);
        case ZAP_ESCAPED_STRING:
        case ZAP_ESCAPED_BINARY:
            return read_escaped(r, v->kind);
        case ZAP_UUID:
            return zap_read_uuid(r);
        case ZAP_TIMESTAMP:
            return zap_read_timestamp(r);
        case ZAP_ZONED: {
            const uint8_t *start = r->at;
            PyObject *value = zap_read_zoned(r, v);
            if (value != NULL || !zap_forget()) {
                return value;
            }
            r->at = start;
            return read_in_python(r, v);        /* which learns the zone */
        }
        case ZAP_FLOAT:
            return zap_read_float(r);
        case ZAP_JSON:
            return read_json(r);
        case ZAP_LIST:
            return read_list(r, v);
        case ZAP_STRUCT:
            return read_struct(r, v);
        case ZAP_KEY:
            return read_key(r, v);
        default:
            return read_in_python(r, v);
    }
}

/* ---- stepping over -------------------------------------------------------------------------- */

static int
skip_bytes(Reader *r, Py_ssize_t size)
{
    if (size == 0 || zap_left(r) < size) {
        return 0;
    }
    r->at += size;
    return 1;
}

int
zap_skip_value(Reader *r, const Value *v)
{
    Reader inside;
    int64_t number;
    int is_unsigned;
    switch (v->kind) {
        case ZAP_INTEGER:
        case ZAP_DECIMAL:
        case ZAP_DATE:
        case ZAP_ENUM:
            return zap_left(r) > 0 && skip_bytes(r, zap_varint_size(*r->at));
        case ZAP_BOOLEAN:
            return skip_bytes(r, 1);
        case ZAP_STRING:
        case ZAP_BINARY:
            if (may_be_blob(v) && zap_left(r) > 0 && *r->at == BLOB_MARK) {
                return skip_bytes(r, 1 + BLOB_ID_SIZE) && zap_read_varint(r, &number, &is_unsigned);
            }
            return zap_read_extent(r, v->number, &inside);
        case ZAP_UUID:
            return skip_bytes(r, 16);
        case ZAP_TIMESTAMP:
        case ZAP_FLOAT:
            return skip_bytes(r, 8);
        case ZAP_ZONED:
            return skip_bytes(r, 9) && zap_left(r) > 0 && skip_bytes(r, zap_varint_size(*r->at));
        case ZAP_JSON:
        case ZAP_LIST:
        case ZAP_STRUCT:
            return zap_read_extent(r, ZAP_VALUE_MAX, &inside);
        default:
            return skip_in_python(r, v);
    }
}

/* ---- writing -------------------------------------------------------------------------------- */

static int
write_integer(Writer *w, PyObject *value)
{
    int overflow;
    if (!PyLong_CheckExact(value)) {
        return 0;
    }
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (!overflow) {
        zap_put_varint(w, number);
    }
    return !overflow;
}

static int
write_text(Writer *w, const Value *v, PyObject *value)
{
    Py_ssize_t size = -1;
    int is_text = v->kind == ZAP_STRING || v->kind == ZAP_ESCAPED_STRING;
    if (is_text ? PyUnicode_CheckExact(value) : PyBytes_CheckExact(value)) {
        size = is_text ? zap_utf8_size(value) : PyBytes_GET_SIZE(value);
    }
    if (size < 0 || size > v->number) {
        return 0;
    }
    if (v->kind == ZAP_STRING || v->kind == ZAP_BINARY) {
        zap_put_varint(w, size);
    }
    return is_text ? zap_write_utf8(w, value, size)
                   : zap_write_bytes(w, PyBytes_AS_STRING(value), size);
}

static int
write_escaped(Writer *w, const Value *v, PyObject *value)
{
    size_t begin = w->at - w->start;
    if (!write_text(w, v, value)) {
        return 0;
    }
    size_t size = (w->at - w->start) - begin, zeros = 0;
    if (!zap_reserve(w, size + 2)) {
        return 0;
    }
    uint8_t *start = w->start + begin, *from = start + size;
    for (size_t i = 0; i < size; i++) {
        zeros += start[i] == 0;
    }
    uint8_t *to = w->at = from + zeros;
    while (from < to) {         /* from the end, until each zero has what follows it */
        *--to = *--from;
        if (*from == 0) {
            to[0] = ESCAPED_ZERO;
            *--to = 0;
        }
    }
    *w->at++ = 0;
    *w->at++ = ESCAPED_END;
    return 1;
}

static int
write_json(Writer *w, PyObject *value)
{
    size_t begin = w->at++ - w->start;
    return zap_write_cbor(w, value, ZAP_DEPTH_MAX) && zap_close_extent(w, begin, ZAP_VALUE_MAX);
}

static int
write_enum(Writer *w, const Value *v, PyObject *value)
{
    PyObject *bytes = PyUnicode_CheckExact(value) ? PyDict_GetItemWithError(v->second, value)
                                                  : NULL;
    return bytes != NULL && zap_write_bytes(w, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
}

/* Writes an item of a list or tuple, which Python code may have changed since the last one. */
static int
write_item(Writer *w, const Value *v, PyObject *items, Py_ssize_t at)
{
    if (at >= PySequence_Fast_GET_SIZE(items)) {
        return 0;
    }
    PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(items, at));
    int is_done = zap_write_value(w, v, item);
    Py_DECREF(item);
    return is_done;
}

static int
write_list(Writer *w, const Value *v, PyObject *value)
{
    size_t begin = w->at++ - w->start;
    if (!PyList_CheckExact(value) && !PyTuple_CheckExact(value)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) {
        if (!write_item(w, &v->parts.fields[0].value, value, i)) {
            return 0;
        }
    }
    return zap_close_extent(w, begin, ZAP_VALUE_MAX);
}

static int
write_struct(Writer *w, const Value *v, PyObject *value)
{
    size_t begin = w->at++ - w->start;
    Py_ssize_t known = 0;
    if (!PyDict_CheckExact(value) && !Py_IS_TYPE(value, v->parts.type)) {
        return 0;
    }
    return zap_write_parts(w, &v->parts, value, &known)
           && (!PyDict_CheckExact(value) || known == PyDict_GET_SIZE(value))
           && zap_close_extent(w, begin, ZAP_VALUE_MAX);
}

static int
write_key(Writer *w, const Value *v, PyObject *value)
{
    size_t begin = w->at - w->start;
    Py_ssize_t count = v->parts.count;
    if (count == 1) {
        if (!zap_write_value(w, &v->parts.fields[0].value, value)) {
            return 0;
        }
    }
    else if ((!PyTuple_CheckExact(value) && !PyList_CheckExact(value))
             || PySequence_Fast_GET_SIZE(value) != count) {
        return 0;
    }
    for (Py_ssize_t i = 0; count > 1 && i < count; i++) {
        if (!write_item(w, &v->parts.fields[i].value, value, i)) {
            return 0;
        }
    }
    return (w->at - w->start) - begin <= ZAP_KEY_MAX;
}

static int
write_known(Writer *w, const Value *v, PyObject *value)
{
    switch (v->kind) {
        case ZAP_INTEGER:
            return write_integer(w, value);
        case ZAP_BOOLEAN:
            if (value != Py_True && value != Py_False) {
                return 0;
            }
            *w->at++ = value == Py_True;
            return 1;
        case ZAP_STRING:
        case ZAP_BINARY:
            return write_text(w, v, value);
        case ZAP_ESCAPED_STRING:
        case ZAP_ESCAPED_BINARY:
            return write_escaped(w, v, value);
        case ZAP_UUID:
            return zap_write_uuid(w, value);
        case ZAP_DECIMAL:
            return zap_write_decimal(w, value, v->number);
        case ZAP_TIMESTAMP:
            return zap_write_timestamp(w, value);
        case ZAP_ZONED:
            return zap_write_zoned(w, v, value);
        case ZAP_DATE:
            return zap_write_date(w, value);
        case ZAP_FLOAT:
            return zap_write_float(w, value);
        case ZAP_JSON:
            return write_json(w, value);
        case ZAP_ENUM:
            return write_enum(w, v, value);
        case ZAP_LIST:
            return write_list(w, v, value);
        case ZAP_STRUCT:
            return write_struct(w, v, value);
        case ZAP_KEY:
            return write_key(w, v, value);
        default:
            return 0;
    }
}

/* Writes a value, or has Python write it: one of another type that Python takes, for example. */
int
zap_write_value(Writer *w, const Value *v, PyObject *value)
{
    size_t begin = w->at - w->start;
    if (!zap_reserve(w, ZAP_SCALAR_MAX)) {
        return 0;
    }
    if (write_known(w, v, value)) {
        return 1;
    }
    w->at = w->start + begin;
    return !may_be_blob(v) && zap_forget() && write_in_python(w, v, value);
}

/* ---- the parts of records and structs ------------------------------------------------------- */

static int
is_present(const Field *f, const uint8_t *bits)
{
    return f->bit < 0 || (bits[f->bit >> 3] >> (f->bit & 7) & 1);
}

static int
read_presence(Reader *r, const Layout *layout, const uint8_t **bits)
{
    Py_ssize_t size = (layout->optional + 7) / 8, used = layout->optional & 7;
    *bits = r->at;
    if (zap_left(r) < size || (used && (*bits)[size - 1] >> used)) {
        return 0;
    }
    r->at += size;
    return 1;
}

/* Reads the first `reach` parts into the slots of an object that nobody has yet. */
int
zap_read_parts(Reader *r, const Layout *layout, Py_ssize_t reach, PyObject *object)
{
    const uint8_t *bits;
    if (!read_presence(r, layout, &bits)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < reach; i++) {
        const Field *f = &layout->fields[i];
        int is_here = is_present(f, bits);
        if (f->offset < 0) {
            if (is_here && !zap_skip_value(r, &f->value)) {
                return 0;
            }
            continue;
        }
        PyObject *value = is_here ? zap_read_value(r, &f->value) : Py_NewRef(Py_None);
        if (value == NULL) {
            return 0;
        }
        *zap_slot(object, f->offset) = value;
        if (is_here && f->bit >= 0 && value == Py_None) {
            return 0;           /* a null that is present */
        }
    }
    return 1;
}

int
zap_skip_parts(Reader *r, const Layout *layout)
{
    const uint8_t *bits;
    if (!read_presence(r, layout, &bits)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < layout->count; i++) {
        const Field *f = &layout->fields[i];
        if (is_present(f, bits) && !zap_skip_value(r, &f->value)) {
            return 0;
        }
    }
    return 1;
}

/* A part of a dict or of an object, or its default; counts what a dict has. */
static PyObject *
take_part(const Field *f, PyObject *source, Py_ssize_t *known)
{
    if (!PyDict_CheckExact(source)) {
        return Py_XNewRef(*zap_slot(source, f->offset));
    }
    PyObject *value = PyDict_GetItemWithError(source, f->name);
    *known += value != NULL;
    return Py_XNewRef(value == NULL && !PyErr_Occurred() ? f->otherwise : value);
}

/* Writes the parts of an exact dict, or of an object of the layout's type. The caller compares how
   many of them the dict had with its size. */
int
zap_write_parts(Writer *w, const Layout *layout, PyObject *source, Py_ssize_t *known)
{
    size_t bits = w->at - w->start, size = (layout->optional + 7) / 8;
    if (!zap_reserve(w, size)) {
        return 0;
    }
    memset(w->at, 0, size);
    w->at += size;
    for (Py_ssize_t i = 0; i < layout->count; i++) {
        const Field *f = &layout->fields[i];
        PyObject *value = take_part(f, source, known);
        int is_null = value == Py_None && f->bit >= 0;
        int is_done = value != NULL && (is_null || zap_write_value(w, &f->value, value));
        Py_XDECREF(value);
        if (!is_done) {
            return 0;
        }
        if (f->bit >= 0 && !is_null) {
            w->start[bits + (f->bit >> 3)] |= (uint8_t)(1 << (f->bit & 7));
        }
    }
    return 1;
}
