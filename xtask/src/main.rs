//! Automation: `cargo xtask <command>`.

mod bench;
mod ci;
mod clients;
mod codegen;
mod tidy;
mod torture;

const USAGE: &str = "cargo xtask <command>

  ci        what CI runs: install what tests need, format, lint, tidy, tests, whole-cluster tests
  clients   fetch the kubectl and helm binaries that whole-cluster tests drive
  tidy      rules that no compiler checks: layers, file length, module docs, duplication
  codegen   make the generated tables again from their public sources
  bench     measure a release build
  torture   inject faults for --minutes N, from --seed S; prints what was tried and what was lost";

fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("ci") => ci::run(),
        Some("clients") => clients::run(),
        Some("tidy") => tidy::run(),
        Some("codegen") => codegen::run(),
        Some("bench") => bench::run(),
        Some("torture") => torture::run(),
        _ => anyhow::bail!("usage: {USAGE}"),
    }
}
