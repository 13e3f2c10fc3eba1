//! Real clients of other people, at pinned versions, against one fresh cluster: each in a namespace of its own, all
//! at the same time. Each does real work and checks its result itself; a script fails with what it expected.
//!
//! The scripts stand in `clients/`, with the versions (`requirements.txt`, `package-lock.json`).

mod rust;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session};

use crate::{cluster, must};

/// What drives a client: a session of commands, or a script for an interpreter.
#[derive(Debug, Clone, Copy)]
enum Script {
    Session(&'static str),
    /// A session with a program that not every machine has.
    SessionOf(&'static str, &'static str),
    Python(&'static str),
    Node(&'static str),
}

/// Namespace, the folder that its kubectl and helm are from, and what runs there.
const CLIENTS: [(&str, &str, Script); 11] = [
    ("helm-3", KUBECTLS[0], Script::Session(include_str!("clients/helm.txt"))),
    ("helm-4", KUBECTLS[1], Script::Session(include_str!("clients/helm.txt"))),
    ("python-kubernetes", KUBECTLS[1], Script::Python("python_kubernetes.py")),
    ("python-asyncio", KUBECTLS[1], Script::Python("python_asyncio.py")),
    ("python-lightkube", KUBECTLS[1], Script::Python("python_lightkube.py")),
    ("python-kr8s", KUBECTLS[1], Script::Python("python_kr8s.py")),
    ("python-kopf", KUBECTLS[1], Script::Python("python_kopf.py")),
    ("python-operator", KUBECTLS[1], Script::Python("python_operator.py")),
    ("python-streams", KUBECTLS[1], Script::Python("python_streams.py")),
    ("node", KUBECTLS[1], Script::Node("node_client.mjs")),
    ("terraform", KUBECTLS[1], Script::SessionOf("terraform", include_str!("clients/terraform.txt"))),
];

/// The scripts' folder.
pub(crate) const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/clients");

fn run(cluster: &Cluster, name: &str, programs: &str, script: Script) -> Result<()> {
    let session = Session::new(cluster, programs, name)?;
    let started = std::time::Instant::now();
    match script {
        Script::Session(text) => {
            session.must(&format!("cp -r {SCRIPTS}/chart ."))?;
            session.run(name, text)?;
        }
        Script::SessionOf(program, text) => match session.must(&format!("command -v {program}")) {
            Ok(_) => session.run(name, text)?,
            Err(_) => eprintln!("{name} skipped: there is no {program} on this machine"),
        },
        Script::Python(file) => {
            let python = fetched("python/bin/python")?;
            session.must(&format!("{} {SCRIPTS}/{file}", python.display()))?;
        }
        Script::Node(file) => {
            // An import is looked for beside the script.
            let modules = fetched("node/node_modules")?;
            session.must(&format!("ln -s {} node_modules; cp {SCRIPTS}/{file} .", modules.display()))?;
            session.must(&format!("node {file}"))?;
        }
    }
    eprintln!("{name} {:.1?}", started.elapsed());
    Ok(())
}

/// What `cargo xtask clients` fetched.
pub(crate) fn fetched(path: &str) -> Result<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/clients");
    let path = all.join(path);
    if !path.exists() {
        bail!("{} is missing; run `cargo xtask clients`", path.display());
    }
    Ok(path)
}

/// All clients at the same time; every one runs, so that one report names everything that failed.
fn failures(cluster: &Cluster) -> Vec<String> {
    std::thread::scope(|scope| {
        let clients: Vec<_> = CLIENTS
            .into_iter()
            .map(|(name, programs, script)| scope.spawn(move || run(cluster, name, programs, script)))
            .collect();
        let ended = clients.into_iter().map(|client| client.join().unwrap());
        ended.filter_map(|ended| ended.err().map(|error| format!("{error:#}"))).collect()
    })
}

#[test]
fn clients_of_every_language_do_their_work() {
    let cluster = cluster();
    let failures = failures(&cluster);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    must(cluster.remove());
}
