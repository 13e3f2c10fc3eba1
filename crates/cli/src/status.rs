//! What `knarr status` prints. Pure: what is known goes in, lines come out.

use std::fmt::Write;
use std::time::Duration;

use machinery::unserved::Unserved;

/// Pods that are not ready are named up to this many.
const NAMED_MAX: usize = 4;

/// The facts about a cluster.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// The API server's, such as `v1.35.0`.
    pub kubernetes: Option<String>,
    /// `true` if the API server is ready.
    pub is_ready: bool,
    /// Checks that do not pass.
    pub failing: Vec<String>,
    /// The time for which it has been up.
    pub age: Option<Duration>,
    /// The memory of its processes, in bytes.
    pub memory_bytes: Option<u64>,
    /// The size of the store on disk, in bytes.
    pub store_bytes: Option<u64>,
    /// All Nodes.
    pub nodes: Vec<Node>,
    /// Pods that are ready, or have ended well.
    pub pods_well: usize,
    /// `namespace/name` of the others.
    pub pods_ill: Vec<String>,
    /// Objects on which no part acts: kind, how many, and why.
    pub unserved: Vec<(String, usize, &'static Unserved)>,
    /// Archives in the folder of images that are none: which, and why.
    pub bad_archives: Vec<(String, String)>,
    /// The command by which it is used.
    pub usage: String,
}

/// The facts about a Node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its address.
    pub ip: String,
    /// `true` if it is Ready.
    pub is_ready: bool,
    /// Conditions that are true and should not be, such as `NetworkUnavailable`.
    pub troubles: Vec<String>,
    /// `true` if its tunnel to the API server stands; nothing where that may not be known.
    pub has_tunnel: Option<bool>,
}

/// The lines.
#[must_use]
pub fn render(of: &Overview, version: &str) -> String {
    let mut head = vec![match &of.kubernetes {
        Some(kubernetes) => format!("knarr {version} (Kubernetes {kubernetes})"),
        None => format!("knarr {version}"),
    }];
    head.push(if of.is_ready { "ready" } else { "not ready" }.to_owned());
    head.extend(of.age.map(|age| format!("up {}", time(age))));
    head.extend(of.memory_bytes.map(size));
    head.extend(of.store_bytes.map(|bytes| format!("store {}", size(bytes))));
    let mut out = head.join("   ") + "\n";
    for check in &of.failing {
        write(&mut out, format_args!("fails   {check}\n"));
    }
    if of.kubernetes.is_some() {
        write(&mut out, format_args!("nodes   {}\n", nodes(of)));
        if let Some(tunnels) = tunnels(of) {
            write(&mut out, format_args!("tunnels {tunnels}\n"));
        }
        write(&mut out, format_args!("pods    {}\n", pods(of)));
    }
    for (kind, count, row) in &of.unserved {
        let one = row.effect.replace("its ", "their ").replace("it ", "them ");
        write(&mut out, format_args!("not in this version   {kind} ({count}): no {}, {one}\n", row.part));
    }
    for (file, error) in &of.bad_archives {
        write(&mut out, format_args!("images  {file} was not imported: {error}\n"));
    }
    if !of.usage.is_empty() {
        write(&mut out, format_args!("use it  {}\n", of.usage));
    }
    out
}

fn write(out: &mut String, line: std::fmt::Arguments<'_>) {
    // A String takes everything.
    if out.write_fmt(line).is_err() {}
}

fn nodes(of: &Overview) -> String {
    let ready = of.nodes.iter().filter(|node| node.is_ready).count();
    let mut text = format!("{ready} ready");
    if ready < of.nodes.len() {
        write(&mut text, format_args!(", {} not ready", of.nodes.len() - ready));
    }
    // Who looks at a long list wants to see first what is wrong.
    let is_well = |node: &&Node| node.is_ready && node.troubles.is_empty();
    let (well, ill): (Vec<&Node>, Vec<&Node>) = of.nodes.iter().partition(is_well);
    let named = ill.iter().chain(&well).take(NAMED_MAX).map(|node| match node.troubles.is_empty() {
        true => format!("{} {}", node.name, node.ip),
        false => format!("{} {} ({})", node.name, node.ip, node.troubles.join(", ")),
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = if of.nodes.len() > NAMED_MAX { ", ..." } else { "" };
    let hint = if ill.is_empty() { "" } else { "   (knarr why)" };
    if named.is_empty() { text } else { format!("{text}   {named}{more}{hint}") }
}

/// The Nodes whose tunnels stand, if there are any.
fn tunnels(of: &Overview) -> Option<String> {
    let all: Vec<&str> =
        of.nodes.iter().filter(|node| node.has_tunnel == Some(true)).map(|node| node.name.as_str()).collect();
    let named = all.get(..NAMED_MAX).unwrap_or(&all).join(", ");
    let more = if all.len() > NAMED_MAX { ", ..." } else { "" };
    (!all.is_empty()).then(|| format!("{} stand   {named}{more}", all.len()))
}

fn pods(of: &Overview) -> String {
    let well = format!("{} running", of.pods_well);
    if of.pods_ill.is_empty() {
        return well;
    }
    let named = of.pods_ill.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = if of.pods_ill.len() > NAMED_MAX { ", ..." } else { "" };
    format!("{well}, {} not ready: {named}{more}   (knarr why)", of.pods_ill.len())
}

/// `80 MiB`
#[must_use]
pub fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 10.0 { format!("{mib:.1} MiB") } else { format!("{mib:.0} MiB") }
}

/// The largest unit that is not nothing: `28 min`.
fn time(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_cluster_is_told_in_a_few_lines() {
        const GATEWAYS: Unserved = Unserved {
            group: "example.com",
            resource: "gateways",
            part: "gateway controller",
            effect: "nothing listens",
        };
        let overview = Overview {
            kubernetes: Some("v1.35.0".into()),
            is_ready: true,
            age: Some(Duration::from_secs(1_700)),
            memory_bytes: Some(80 << 20),
            store_bytes: Some(2_726_298),
            nodes: vec![Node {
                name: "vm".into(),
                ip: "172.31.1.2".into(),
                is_ready: true,
                ..Node::default()
            }],
            pods_well: 7,
            pods_ill: vec!["default/w-pull".into(), "default/w-cpu".into()],
            unserved: vec![("Gateways".to_owned(), 3, &GATEWAYS)],
            bad_archives: vec![("/x/images/a.tar".into(), "this is no archive".into())],
            usage: "export KUBECONFIG=/x".into(),
            ..Overview::default()
        };
        expect![[r#"
            knarr 0.1.0 (Kubernetes v1.35.0)   ready   up 28 min   80 MiB   store 2.6 MiB
            nodes   1 ready   vm 172.31.1.2
            pods    7 running, 2 not ready: default/w-pull, default/w-cpu   (knarr why)
            not in this version   Gateways (3): no gateway controller, nothing listens
            images  /x/images/a.tar was not imported: this is no archive
            use it  export KUBECONFIG=/x
        "#]]
        .assert_eq(&render(&overview, "0.1.0"));
        let elsewhere = Node {
            name: "far".into(),
            ip: "198.51.100.12".into(),
            is_ready: true,
            troubles: vec!["NetworkUnavailable".into()],
            has_tunnel: None,
        };
        let tunnelled = |has_tunnel| Node { has_tunnel, ..elsewhere.clone() };
        let told = |nodes| self::tunnels(&Overview { nodes, ..Overview::default() });
        assert_eq!(told(vec![tunnelled(Some(false)), tunnelled(None)]), None);
        assert_eq!(
            told(vec![tunnelled(Some(false)), tunnelled(Some(true))]).as_deref(),
            Some("1 stand   far")
        );
        let many = "6 stand   far, far, far, far, ...";
        assert_eq!(told(vec![tunnelled(Some(true)); 6]).as_deref(), Some(many));
        let nodes = [overview.nodes[0].clone(), elsewhere].into();
        assert_eq!(
            self::nodes(&Overview { nodes, ..Overview::default() }),
            "2 ready   far 198.51.100.12 (NetworkUnavailable), vm 172.31.1.2   (knarr why)"
        );
        let ill = Overview { failing: vec!["etcd".into()], ..Overview::default() };
        expect![[r#"
            knarr 0.1.0   not ready
            fails   etcd
        "#]]
        .assert_eq(&render(&ill, "0.1.0"));
    }
}
