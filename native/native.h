/* The optional accelerator of zapdb's codec: what its files share.

   It knows valid, ordinary records alone. Whatever else it meets, it declines: it drops what it has
   made and calls the generated Python function of the same layout with the same arguments, which
   returns or raises what is right. So there is no text of an error here and no decision, and the
   only possible bug is to accept, or to write, what Python would not.

   A function that returns int returns true when it has done its work, and false when it declines.
   A function that returns a new object declines with NULL. In both cases an exception may be set:
   see zap_forget(). */

#ifndef ZAPDB_NATIVE_H
#define ZAPDB_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#ifdef Py_GIL_DISABLED
#  error "free-threaded builds of Python use the pure codec"
#endif

/* Raised whenever native.py would give Plan something else, or expect something else of it. */
#define ZAP_INTERFACE 4

/* As in zapdb/limits.py. */
#define ZAP_INLINE_MAX 4096
#define ZAP_VALUE_MAX (4 * 1024 * 1024)
#define ZAP_KEY_MAX 1024
#define ZAP_DEPTH_MAX 64

/* Of the accelerator alone. */
#define ZAP_SMALL_RECORD 512    /* bytes that are written without an allocation */
#define ZAP_SMALL_LIST 32       /* items that are allocated because a head declares them */
#define ZAP_SMALL_MAP 16        /* items that are sorted without an allocation */
#define ZAP_SMALL_TEXT 64       /* bytes that are tried as ASCII first */
#define ZAP_KNOWN_KEYS 1024     /* keys of JSON objects that are kept */
#define ZAP_KNOWN_KEY_MAX 32    /* bytes of such a key */
#define ZAP_VARINT_MAX 9        /* bytes of a varint, or of a head of CBOR, that is written here */
#define ZAP_SCALAR_MAX 16       /* bytes of any value of a fixed size, and of those */

typedef struct {
    PyTypeObject *plan_type, *rows_type, *uuid_type, *decimal_type;
    PyObject *uuid_unknown;
    Py_ssize_t uuid_int, uuid_is_safe;          /* offsets of a UUID's two slots */
    void *datetime;                             /* PyDateTime_CAPI */
    PyObject *known_keys[ZAP_KNOWN_KEYS];       /* by a hash of their bytes */
} State;

typedef struct {
    State *state;
    PyObject *data;                             /* bytes, which the caller keeps */
    const uint8_t *start, *at, *end;
    int has_blob;
} Reader;

typedef struct {
    const State *state;
    uint8_t *start, *at, *end;
    uint8_t small[ZAP_SMALL_RECORD];
} Writer;

/* Each kind's number is an attribute of the module, under the same name. */
#define ZAP_KINDS(KIND) \
    KIND(INTEGER) KIND(BOOLEAN) KIND(STRING) KIND(BINARY) KIND(ESCAPED_STRING) \
    KIND(ESCAPED_BINARY) KIND(UUID) KIND(DECIMAL) KIND(TIMESTAMP) KIND(ZONED) KIND(DATE) \
    KIND(FLOAT) KIND(JSON) KIND(ENUM) KIND(LIST) KIND(STRUCT) KIND(KEY) KIND(PYTHON)
#define ZAP_KIND_ITEM(NAME) ZAP_##NAME,
typedef enum { ZAP_KINDS(ZAP_KIND_ITEM) ZAP_KIND_COUNT } Kind;

typedef struct Field Field;

/* The parts of a record, a struct, a list or a key, in the order of their bytes. */
typedef struct {
    PyTypeObject *type;                         /* of records and structs; else NULL */
    Py_ssize_t count, optional;
    Field *fields;
} Layout;

/* How the values of a type are read and written. */
typedef struct {
    Kind kind;
    Py_ssize_t number;                          /* the scale, or the most bytes of a value */
    PyObject *decode, *skip, *encode;           /* Python's own; encode is NULL if a value may
                                                   become a blob */
    PyObject *first, *second;                   /* of an enum: names by id, bytes by name;
                                                   of local times: zones by number, numbers by
                                                   zone, as far as Python has met them;
                                                   of a decimal: multiply, its unit */
    Layout parts;
} Value;

struct Field {
    PyObject *name;
    PyObject *otherwise;                        /* the default; NULL if a value is required */
    Py_ssize_t offset;                          /* in the object; -1: not wanted */
    int bit;                                    /* of presence; -1: always present */
    int is_inverted;                            /* in an index's key */
    Value value;
};

/* module.c: forgets an ordinary exception; false for one that has to get through, such as
   KeyboardInterrupt. */
int zap_forget(void);

/* text.c */
PyObject *zap_text(const uint8_t *bytes, Py_ssize_t size);
Py_ssize_t zap_utf8_size(PyObject *text);
int zap_write_utf8(Writer *, PyObject *text, Py_ssize_t size);

/* cbor.c */
PyObject *zap_read_cbor(Reader *, int depth);
int zap_write_cbor(Writer *, PyObject *value, int depth);

/* scalars.c */
int zap_load_types(State *);
PyObject *zap_read_uuid(Reader *);
PyObject *zap_read_decimal(const Value *, int64_t number);
PyObject *zap_read_timestamp(Reader *);
PyObject *zap_read_zoned(Reader *, const Value *);
PyObject *zap_read_date(const State *, int64_t days);
PyObject *zap_read_float(Reader *);
int zap_write_uuid(Writer *, PyObject *value);
int zap_write_decimal(Writer *, PyObject *value, Py_ssize_t scale);
int zap_write_timestamp(Writer *, PyObject *value);
int zap_write_zoned(Writer *, const Value *, PyObject *value);
int zap_write_date(Writer *, PyObject *value);
int zap_write_float(Writer *, PyObject *value);

/* values.c */
PyObject *zap_read_value(Reader *, const Value *);
int zap_skip_value(Reader *, const Value *);
int zap_write_value(Writer *, const Value *, PyObject *value);
int zap_read_parts(Reader *, const Layout *, Py_ssize_t reach, PyObject *object);
int zap_skip_parts(Reader *, const Layout *);
int zap_write_parts(Writer *, const Layout *, PyObject *source, Py_ssize_t *known);

/* layout.c: from the tuples that native.py makes. They raise exceptions, as Python code does. */
int zap_make_layout(Layout *, PyObject *type, PyObject *fields, Py_ssize_t optional);
int zap_visit_layout(const Layout *, visitproc visit, void *arg);
void zap_free_layout(Layout *);

/* plan.c, rows.c */
typedef enum {
    ZAP_DECODE, ZAP_ENCODE, ZAP_SKIP, ZAP_ENCODE_KEY, ZAP_KEY_OF, ZAP_DECODE_KEY, ZAP_BUILD,
    ZAP_DEFER, ZAP_FUNCTION_COUNT
} Function;

typedef struct {
    PyObject_HEAD
    State *state;
    Layout key, body;
    Py_ssize_t reach;                           /* how many of the body's fields are read */
    PyObject *functions;                        /* Python's own, a tuple in the order above */
} Plan;

extern PyType_Spec zap_plan_spec, zap_rows_spec;
PyObject *zap_decode(const Plan *, PyObject *key, PyObject *data, Py_ssize_t start,
                     PyObject *attachments);
PyObject *zap_iterate(Plan *, PyObject *const *args, Py_ssize_t nargs);

/* ---- bytes -------------------------------------------------------------------------------- */

static inline Py_ssize_t
zap_left(const Reader *r)
{
    return r->end - r->at;
}

static inline uint64_t
zap_big_endian(const uint8_t *bytes, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++) {
        value = value << 8 | bytes[i];
    }
    return value;
}

/* Whatever is at a place in an object: an item of a slot. */
static inline PyObject **
zap_slot(PyObject *object, Py_ssize_t offset)
{
    return (PyObject **)((char *)object + offset);
}

static inline void
zap_reader(Reader *r, State *state, PyObject *data, Py_ssize_t start)
{
    r->state = state;
    r->data = data;
    r->start = (const uint8_t *)PyBytes_AS_STRING(data);
    r->at = r->start + start;
    r->end = r->start + PyBytes_GET_SIZE(data);
    r->has_blob = 0;
}

/* writer.c */
void zap_writer(Writer *, const State *);
void zap_free_writer(Writer *);
PyObject *zap_written(const Writer *);
int zap_grow(Writer *, size_t size);
int zap_write_bytes(Writer *, const void *bytes, Py_ssize_t size);
int zap_close_extent(Writer *, size_t begin, Py_ssize_t size_max);

/* Makes room: true if that many bytes can be written. */
static inline int
zap_reserve(Writer *w, size_t size)
{
    return (size_t)(w->end - w->at) >= size || zap_grow(w, size);
}

static inline void
zap_put(Writer *w, uint64_t value, int size)
{
    for (int i = size - 1; i >= 0; i--) {
        w->at[i] = (uint8_t)value;
        value >>= 8;
    }
    w->at += size;
}

/* varint.c: the orderable varint, as zapdb/values/varint.py defines it, up to 8 bytes of payload */
int zap_read_varint(Reader *, int64_t *value, int *is_unsigned);
int zap_read_extent(Reader *, Py_ssize_t size_max, Reader *inside);
int zap_varint_size(uint8_t first);
void zap_put_varint(Writer *, int64_t value);

#endif
