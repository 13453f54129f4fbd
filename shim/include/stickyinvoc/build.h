/* StickyInvoc builders, C ABI: any program makes a state that others attach to. Link -lstickyinvoc.
 *
 *   sti_build* build;
 *   sti_build_begin(&options, &build, &error);
 *   sti_build_arena(build, bytes, wait_ms, &arena, &memory, &error);    ... fill memory in place
 * ... sti_build_add_tensor(build, &tensor, &error); sti_build_commit(build, &error);
 *   sti_build_end(build);
 *
 * The memory is the daemon's, within its budget. At the commit this library lets go of it, and the
 * daemon seals it for everyone, digests it and publishes the state. Until then nobody can see it;
 * when this process ends, or calls sti_build_end, before that, all is given back.
 *
 * Pointers into an arena may be used until sti_build_end, but only before the commit do they lead
 * to the state: afterwards they lead to zeros that are this process' own.
 *
 * Thread: one thread at a time for each build. Fork: a build belongs to the process that began it;
 * a child that still maps an arena makes the commit fail with STI_UNAVAILABLE.
 */
#ifndef STICKYINVOC_BUILD_H_
#define STICKYINVOC_BUILD_H_

#include <stickyinvoc/stickyinvoc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sti_access {
  STI_ACCESS_OWNER = 0,
  STI_ACCESS_GROUP = 1,
  STI_ACCESS_NODE = 2
} sti_access;
typedef enum sti_placement {
  STI_NAME_MUST_BE_FREE = 0,
  STI_REPLACE = 1, /* the next epoch beside the old one, which goes when its last lease ends */
  STI_IN_PLACE = 2 /* the old one is drained first */
} sti_placement;

/* Zero-initialize, then set struct_bytes and state. */
typedef struct sti_build_options {
  uint32_t struct_bytes;   /* sizeof(sti_build_options) */
  uint32_t connect_ms;     /* deadline for connecting and for each plain answer; 0 means 5000 */
  uint32_t deadline_ms;    /* from begin to commit; 0: the daemon's own (an hour) */
  uint32_t placement;      /* an sti_placement */
  uint32_t access;         /* an sti_access: who may attach besides this user */
  uint32_t pin;            /* 1: never evicted for want of memory */
  uint64_t idle_ms;        /* evicted when nobody has leased it for so long; 0: never */
  const char* state;       /* name of the state; NULL under `stickyctl build`, which has named it */
  const char* socket_path; /* NULL: as sti_attach */
  const char* source;      /* for people: what it is built from; may be NULL */
  const char* base;        /* a state that it is derived from and keeps; may be NULL */
  const char* builder;     /* for people: what builds it, and its version; may be NULL */
  const char* cpu;         /* the CPU that it is good for; NULL: any */
  const uint8_t* recipe_digest; /* 16 bytes that say how it is made, or NULL. When a state of that
                                   name and digest is there, there is nothing to build */
} sti_build_options;

typedef struct sti_build sti_build; /* one build; opaque */

/* Begins a build. options: may be NULL under `stickyctl build` alone. That has begun the build for
 * this process: of options without a state, cpu counts, and the rest is as its command line says.
 *   out: set on success only; the caller ends it with sti_build_end.
 * Blocking: at most connect_ms.
 * Errors: STI_INVALID_ARGUMENT (the name is taken), STI_PERMISSION_DENIED, STI_UNAVAILABLE (no
 * daemon, draining, or somebody else builds it), STI_NOT_FOUND (no such base). */
STI_EXPORT int sti_build_begin(const sti_build_options* options, sti_build** out, sti_error* error);

/* 1 when the state was there already, with the same recipe_digest: there is nothing to do. */
STI_EXPORT int sti_build_is_there(const sti_build* build);

/* One more arena of `size_bytes` bytes of zeros, mapped writable at *memory until the commit.
 *   arena: its number, from 0; at most 64 in a build. wait_ms: how long to wait for room.
 * Blocking: at most wait_ms, and while pages are made present (about a second for 2 GiB).
 * Errors: STI_OUT_OF_MEMORY (no room: the message says who holds it), STI_UNAVAILABLE. */
STI_EXPORT int sti_build_arena(sti_build* build, uint64_t size_bytes, uint32_t wait_ms,
                               uint32_t* arena, void** memory, sti_error* error);

typedef struct sti_build_tensor {
  const char* name;            /* 1 to 1024 bytes */
  int32_t dtype;               /* an sti_dtype */
  int32_t rank;                /* 0 to STI_RANK_MAX */
  int64_t shape[STI_RANK_MAX]; /* elements, outermost first */
  uint64_t offset;             /* bytes into the arena, a multiple of 256 */
  uint32_t arena;
  uint32_t reserved; /* 0 */
} sti_build_tensor;

/* Says what lies in an arena. Tensors may overlap. Copied.
 * Errors: STI_INVALID_ARGUMENT: it does not lie in the arena, or is malformed; nothing changed. */
STI_EXPORT int sti_build_add_tensor(sti_build* build, const sti_build_tensor* tensor,
                                    sti_error* error);

/* As sti_build_add_tensor, of bytes without a shape: a file, a table of another program. */
STI_EXPORT int sti_build_add_asset(sti_build* build, const char* name, uint32_t arena,
                                   uint64_t offset, uint64_t size_bytes, sti_error* error);

/* Lets go of the arenas and publishes the state.
 * Blocking: while the daemon's child digests it (about a second for 8 GiB).
 * Errors: STI_UNAVAILABLE while somebody else (a child of fork()) still maps an arena writable:
 * mend that and commit again; STI_CORRUPT: pages were punched out, or a name stands twice. */
STI_EXPORT int sti_build_commit(sti_build* build, sti_error* error);

/* Gives the build up, unless it was committed: the name and the memory are free again. Afterwards
 * it can only be ended; until then addresses of its arenas are valid, as after a commit. For
 * programs that cannot be sure that nothing of theirs still points into an arena. NULL is allowed.
 */
STI_EXPORT void sti_build_give_up(sti_build* build);

/* Frees `build` and unmaps its arenas. One that was not committed is given up. NULL is allowed. */
STI_EXPORT void sti_build_end(sti_build* build);

#ifdef __cplusplus
}
#endif

#endif /* STICKYINVOC_BUILD_H_ */
