//! Nothing: this crate is its list of libraries, with all features that any crate of the workspace wants of them.
//!
//! The tests of every crate depend on it, so that a library is built once and not anew for `cargo test -p` of each. What
//! users build does not. `cargo xtask tidy` says what is missing here.
