//! Nothing to do: where there is no build script, libraries for build scripts are not built.

fn main() {}
