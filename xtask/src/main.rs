//! Automation: `cargo xtask <command>`.

mod codegen;

fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("codegen") => codegen::run(),
        other => anyhow::bail!("unknown command {other:?}: one of codegen"),
    }
}
