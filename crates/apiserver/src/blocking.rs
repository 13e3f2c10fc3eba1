//! Work that may keep a thread busy for long: other tasks of the thread go on elsewhere meanwhile.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does what may take long, where there is another thread for the others; and at once what does not.
pub(crate) fn when<T>(may_take_long: bool, work: impl FnOnce() -> T) -> T {
    let has_threads =
        || Handle::try_current().is_ok_and(|own| own.runtime_flavor() == RuntimeFlavor::MultiThread);
    if may_take_long && has_threads() { tokio::task::block_in_place(work) } else { work() }
}
