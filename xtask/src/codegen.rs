//! Makes the table of facts `crates/schema/src/generated/` out of public packages.
//!
//! Protobuf numbers and the `+markers` come from the Rust package `k8s-pb`; JSON names, list types, merge keys
//! and kinds from the OpenAPI definitions in the Python package `kubernetes-validate`; what Go leaves out of
//! JSON from `codegen/omit-zero.txt`, which `codegen go-tags` makes. Facts are written, texts are not. Run it again at any time: the same
//! sources give the same bytes.

mod emit;
mod go_tags;
mod join;
mod openapi;
mod pb;
mod sources;

/// Reads the sources, joins them and writes the generated files.
pub(crate) fn run() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    if let [command, sources @ ..] = arguments.as_slice()
        && command == "go-tags"
    {
        return go_tags::run(sources);
    }
    let sources = sources::fetch()?;
    let messages = pb::read(&sources.pb)?;
    let definitions = openapi::read(&sources.definitions)?;
    let table = join::join(&messages, &definitions, include_str!("codegen/omit-zero.txt"))?;
    emit::write(&table, &sources.root)
}
