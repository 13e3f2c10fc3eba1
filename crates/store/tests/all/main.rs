//! The two stores: the suite that both must pass, and what each has of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod embedded;
mod etcd;
mod sessions;
mod suite;
mod writes;
