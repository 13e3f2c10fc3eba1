//! Measures the release build of knarr that lies beside this program; `cargo xtask bench` builds and runs both.
//!
//! What is measured are the rows of [`rows::ROWS`]. Each makes its own cluster, in a folder and a network namespace of
//! its own with no route to the outside, and removes it with `knarr reset`, also after a failure. A row that fails is
//! reported beside the others. All loops are bounded. The clients share the machine with what they measure, so CPU per
//! operation stands beside every rate.

// Rows of this process are measured with the program's allocator.
#[path = "../../knarr/src/allocator.rs"]
mod allocator;
mod arguments;
mod bench;
mod extent;
mod load;
mod objects;
mod processes;
mod report;
mod rows;
mod tcp;

use anyhow::{Context, Result, bail};

use arguments::Arguments;
use bench::Bench;
use report::{Machine, Report};

fn main() -> Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1), rows::ROWS)?;
    let knarr = std::env::current_exe()?.with_file_name("knarr");
    let knarr = knarr.to_str().context("the path of this program is not UTF-8")?.to_owned();
    let report = Report::new(Machine::look()?);
    let mut bench = Bench { knarr, extent: arguments.extent, report };
    for row in rows::ROWS.iter().filter(|row| arguments.wants(row.name)) {
        eprintln!("bench: {}: {}", row.name, row.about);
        let measured = (row.measure)(&mut bench);
        bench.report.note(row.name, measured);
    }
    print!("{}", bench.report.render(arguments.format)?);
    if bench.report.has_failures() {
        bail!("not everything could be measured");
    }
    Ok(())
}
