//! The steps of a cluster's start, which its parts tell their supervisor on standard output.

use std::io::Write;

use cli::args::{Part, ServerArgs};

/// What a cluster is ready to do; each is one line on the server's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Requests are answered.
    ApiServer,
    /// Services are programmed.
    Proxy,
    /// Names are answered.
    Dns,
    /// The Node is there, and lacks at most somebody else's network, which is installed through the API.
    Registered,
    /// The Node is Ready: a Pod can run.
    Node,
    /// So are the other Nodes on this host.
    Nodes,
}

impl Ready {
    /// All of them, in the order in which they are told.
    pub(crate) const ALL: [Self; 6] =
        [Self::ApiServer, Self::Registered, Self::Node, Self::Proxy, Self::Dns, Self::Nodes];

    /// For people.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::ApiServer => "API server answers",
            Self::Proxy => "Services are programmed",
            Self::Dns => "DNS answers",
            Self::Registered => "Node is registered",
            Self::Node => "Node is Ready",
            Self::Nodes => "other Nodes are Ready",
        }
    }

    /// What a cluster of these flags is ready to do, once it is up.
    pub(crate) fn awaited(args: &ServerArgs) -> Vec<Self> {
        // Whoever installs a network needs the cluster for it.
        let is_foreign = args.container_runtime.has_foreign_network();
        let runs = |ready: &Self| match ready {
            Self::ApiServer => true,
            Self::Proxy => args.runs(Part::Proxy),
            Self::Dns => args.runs(Part::Dns),
            // Without a scheduler or controllers the Node is Ready all the same.
            Self::Node => args.runs(Part::Kubelet) && !is_foreign,
            Self::Registered => args.runs(Part::Kubelet) && is_foreign,
            Self::Nodes => args.runs(Part::Kubelet) && args.nodes.is_some_and(|nodes| nodes > 1),
        };
        Self::ALL.into_iter().filter(runs).collect()
    }

    /// Tells the supervisor, and through it `knarr up`.
    pub(crate) fn announce(self) {
        let mut stdout = std::io::stdout();
        if let Err(error) = writeln!(stdout, "ready: {}", self.describe()).and_then(|()| stdout.flush()) {
            tracing::debug!(%error, "nobody waits for readiness");
        }
    }

    /// Reads what [`Ready::announce`] wrote.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let what = line.strip_prefix("ready: ")?;
        Self::ALL.into_iter().find(|ready| ready.describe() == what)
    }
}
