use super::*;
use expect_test::expect;

fn spec(text: &str) -> PodSpec {
    serde_saphyr::from_str(text).unwrap()
}

fn cluster() -> ClusterDns {
    ClusterDns { servers: vec!["10.43.0.10".into()], domain: "cluster.local".into(), loopback: Vec::new() }
}

/// Name servers, search domains and options, apart by bars.
fn shown(config: &DnsConfig) -> String {
    [&config.servers, &config.searches, &config.options].map(|list| list.join(" ")).join(" | ")
}

/// Source: `TestParseResolvConf` of upstream's `pkg/kubelet/network/dns`; a name server without an address is an error
/// there, and nothing is wrong with the rest of the file here.
#[test]
fn the_hosts_settings_are_read_as_upstream_reads_them() {
    for (text, expect) in [
        ("", " |  | "),
        ("\t\n\t", " |  | "),
        (" #comment\n#nameserver 1.2.3.4", " |  | "),
        (" nameserver \t 1.2.3.4", "1.2.3.4 |  | "),
        ("nameserver 1.2.3.4\nnameserver 5.6.7.8", "1.2.3.4 5.6.7.8 |  | "),
        ("nameserver 1.2.3.4 #comment", "1.2.3.4 |  | "),
        ("nameserver\nnameserver 1.2.3.4", "1.2.3.4 |  | "),
        ("search ", " |  | "),
        ("search .", " |  | "),
        ("search foo .  bar", " | foo bar | "),
        ("search foo. bar", " | foo bar | "),
        ("search foo\nsearch bar", " | bar | "),
        ("search foo\nsearch", " |  | "),
        ("search foo bar\ndomain foo", " | foo bar | "),
        ("comment\nsearch foo\ncomment", " | foo | "),
        ("options ndots:5 attempts:2", " |  | ndots:5 attempts:2"),
        ("options ndots:1 ndots:5 attempts:2", " |  | ndots:5 attempts:2"),
        ("options ndots:1\noptions ndots:5 attempts:3", " |  | ndots:5 attempts:3"),
        ("options ndots:1 timeout:3 timeout:1\noptions ndots:5", " |  | timeout:1 ndots:5"),
        ("options edns0 single-request-reopen edns0", " |  | single-request-reopen edns0"),
        (
            "nameserver 1.2.3.4\nsearch foo\nnameserver 5.6.7.8\nsearch bar\noptions ndots:5",
            "1.2.3.4 5.6.7.8 | bar | ndots:5",
        ),
    ] {
        assert_eq!(shown(&parse_resolv_conf(text)), expect, "{text:?}");
    }
}

const HOST: &str = "nameserver 8.8.8.8\nsearch host.domain\noptions timeout:1\n";
const EXTRA: &str = "dnsConfig: {nameservers: [10.0.0.11, 8.8.8.8], searches: [my.domain, host.domain],
    options: [{name: ndots, value: '3'}, {name: debug}, {name: edns0, value: ''}]}";

/// Source: `TestGetPodDNSType`, `TestGetPodDNSCustom` and `TestMergeDNSOptions` of upstream's `pkg/kubelet/network/dns`.
#[test]
fn the_policy_says_whose_settings_a_pod_has() {
    const IN_CLUSTER: &str =
        "10.43.0.10 | shop.svc.cluster.local svc.cluster.local cluster.local host.domain | ndots:5";
    const OF_HOST: &str = "8.8.8.8 | host.domain | timeout:1";
    for (spec_text, expect) in [
        ("dnsPolicy: ClusterFirst", IN_CLUSTER),
        ("tty: 1", IN_CLUSTER),
        ("dnsPolicy: ClusterFirst, hostNetwork: true", OF_HOST),
        ("dnsPolicy: ClusterFirstWithHostNet, hostNetwork: true", IN_CLUSTER),
        ("dnsPolicy: ClusterFirstWithHostNet", IN_CLUSTER),
        ("dnsPolicy: Default", OF_HOST),
        ("dnsPolicy: Default, hostNetwork: true", OF_HOST),
        ("dnsPolicy: whatever", IN_CLUSTER),
        ("dnsPolicy: None", " |  | "),
    ] {
        let spec = spec(&format!("{{containers: [], {spec_text}}}"));
        assert_eq!(shown(&dns_config("shop", &spec, &cluster(), HOST)), expect, "{spec_text}");
    }
    for (policy, expect) in [
        ("None", "10.0.0.11 8.8.8.8 | my.domain host.domain | ndots:3 debug edns0"),
        (
            "ClusterFirst",
            "10.43.0.10 10.0.0.11 8.8.8.8 | shop.svc.cluster.local svc.cluster.local cluster.local host.domain my.domain | ndots:3 debug edns0",
        ),
        ("Default", "8.8.8.8 10.0.0.11 | host.domain my.domain | timeout:1 ndots:3 debug edns0"),
    ] {
        let spec = spec(&format!("{{containers: [], dnsPolicy: {policy}, {EXTRA}}}"));
        assert_eq!(shown(&dns_config("shop", &spec, &cluster(), HOST)), expect, "{policy}");
    }
}

/// Source: `GetPodDNS` of upstream.
#[test]
fn without_a_cluster_dns_or_a_host_there_is_still_something() {
    let loopback = || vec!["127.0.0.1".to_owned(), "::1".to_owned()];
    let none = ClusterDns::default();
    let nameless = ClusterDns { domain: String::new(), ..cluster() };
    let apart = ClusterDns { loopback: loopback(), ..cluster() };
    let alone = ClusterDns { loopback: loopback(), ..ClusterDns::default() };
    for (name, policy, cluster, host, expect) in [
        ("no cluster DNS", "ClusterFirst", &none, HOST, "8.8.8.8 | host.domain | timeout:1"),
        ("no domain", "ClusterFirst", &nameless, HOST, "10.43.0.10 | host.domain | ndots:5"),
        ("no host", "Default", &apart, "", "127.0.0.1 ::1 | . | "),
        (
            "the cluster's",
            "ClusterFirst",
            &apart,
            "",
            "10.43.0.10 | shop.svc.cluster.local svc.cluster.local cluster.local | ndots:5",
        ),
        ("neither", "ClusterFirst", &alone, "", "127.0.0.1 ::1 | . | "),
        ("nothing is wanted", "None", &alone, "", " |  | "),
    ] {
        let spec = spec(&format!("{{containers: [], dnsPolicy: {policy}}}"));
        assert_eq!(shown(&dns_config("shop", &spec, cluster, host)), expect, "{name}");
        let complaints = dns_complaints("shop", &spec, cluster, host);
        let reasons: Vec<_> = complaints.iter().map(|complaint| complaint.reason).collect();
        let is_missing = policy == "ClusterFirst" && cluster.servers.is_empty();
        assert_eq!(reasons, if is_missing { &["MissingClusterDNS"][..] } else { &[] }, "{name}");
    }
}

/// Source: `TestFormDNSSearchFitsLimits` and `TestFormDNSNameserversFitsLimits` of upstream's `pkg/kubelet/network/dns`.
#[test]
fn what_a_resolver_would_not_take_is_left_out_and_told() {
    const SEARCHES: &str =
        "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ";
    const SERVERS: &str = "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: ";
    let long = |letter: &str, length: usize| letter.repeat(length);
    let numbered = |count: usize| (1..=count).map(|number| format!("d{number}")).collect::<Vec<_>>();
    // 2048 characters, with the spaces between them.
    let most: Vec<String> =
        (0..16).map(|at| format!("{at:02}{}", long("a", if at == 0 { 126 } else { 125 }))).collect();
    let texts = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    let with = |list: &[String], last: String| [list, &[last]].concat();
    for (name, searches, applied, is_told) in [
        ("a few", texts(&["a", "b"]), texts(&["a", "b"]), false),
        ("one that is as long as it may be", vec![long("b", 253)], vec![long("b", 253)], false),
        ("one is too long", vec!["a".into(), long("b", 254), "c".into()], texts(&["a", "c"]), true),
        ("as many characters as can be", most.clone(), most.clone(), false),
        ("two more", with(&most, "b".into()), most.clone(), true),
        ("as many as can be", numbered(32), numbered(32), false),
        ("one more", numbered(33), numbered(32), true),
        ("what is too long counts, too", [vec![long("b", 254)], numbered(32)].concat(), numbered(31), true),
    ] {
        let mut config = DnsConfig { searches, ..DnsConfig::default() };
        let told = limit(&mut config);
        assert_eq!(config.searches, applied, "{name}");
        let expect = is_told.then(|| format!("{SEARCHES}{}", applied.join(" ")));
        assert_eq!(told, expect.into_iter().collect::<Vec<_>>(), "{name}");
    }
    for (servers, applied) in [
        (&["127.0.0.1"][..], None),
        (&["127.0.0.1", "10.0.0.10", "8.8.8.8"], None),
        (&["127.0.0.1", "10.0.0.10", "8.8.8.8", "1.2.3.4"], Some("127.0.0.1 10.0.0.10 8.8.8.8")),
    ] {
        let mut config = DnsConfig { servers: texts(servers), ..DnsConfig::default() };
        let told = limit(&mut config);
        assert_eq!(told, applied.map(|line| format!("{SERVERS}{line}")).into_iter().collect::<Vec<_>>());
        assert_eq!(config.servers, texts(servers.get(..3).unwrap_or(servers)));
    }
    let pod = spec("{containers: [], dnsConfig: {nameservers: [1.1.1.1, 2.2.2.2, 3.3.3.3]}}");
    let told = dns_complaints("shop", &pod, &cluster(), "");
    let message = format!("{SERVERS}10.43.0.10 1.1.1.1 2.2.2.2");
    assert_eq!(told, [Complaint { reason: "DNSConfigForming", message }]);
}

/// Source: `TestGeneratePodHostNameAndDomain` and `TestTruncatePodHostname` of upstream's `pkg/kubelet`.
#[test]
fn a_pod_is_called_as_upstream_calls_it() {
    const LONG: &str = "1234567.1234567.1234567.1234567.1234567.1234567.1234567.";
    let many = "a".repeat(65);
    let override_of_65 = format!("hostnameOverride: {many}");
    for (pod, fields, hostname, full) in [
        ("web", "tty: 1", "web", None),
        ("web", "hostname: ''", "web", None),
        ("web", "hostname: own", "own", None),
        ("web", "subdomain: sub", "web", Some("web.sub.shop.svc.cluster.local")),
        ("web", "subdomain: ''", "web", None),
        ("web", "hostname: own, subdomain: sub", "own", Some("own.sub.shop.svc.cluster.local")),
        ("web", "hostname: own, subdomain: sub, hostnameOverride: a.b", "a.b", None),
        ("web", &*override_of_65, &many[..63], None),
        ("test.pod.hostname", "tty: 1", "test.pod.hostname", None),
        (&*many, "tty: 1", &many[..63], None),
        (&*format!("{LONG}1234567.1234567."), "tty: 1", &*format!("{LONG}1234567"), None),
        (&*format!("{LONG}123456.1234567."), "tty: 1", &*format!("{LONG}123456"), None),
        (&*format!("{LONG}123456-1234567."), "tty: 1", &*format!("{LONG}123456"), None),
        (
            &*format!("{LONG}12345.-1234567."),
            "subdomain: s",
            &*format!("{LONG}12345"),
            Some(&*format!("{LONG}12345.s.shop.svc.cluster.local")),
        ),
    ] {
        let found = names(pod, "shop", &spec(&format!("{{containers: [], {fields}}}")), "cluster.local");
        assert_eq!(found, (hostname.to_owned(), full.map(str::to_owned)), "{pod} {fields}");
    }
}

/// Source: `TestGetNodenameForKernel` of upstream's `pkg/kubelet/util`.
#[test]
fn the_kernel_is_told_the_whole_name_where_that_is_wanted_and_short_enough() {
    let long = "a".repeat(40);
    for (pod, fields, expect) in [
        ("web", "subdomain: sub", Ok("web")),
        ("web", "subdomain: sub, setHostnameAsFQDN: false", Ok("web")),
        ("web", "subdomain: sub, setHostnameAsFQDN: true", Ok("web.sub.shop.svc.cluster.local")),
        ("web", "setHostnameAsFQDN: true", Ok("web")),
        ("web", "subdomain: sub, hostnameOverride: a.b, setHostnameAsFQDN: true", Ok("a.b")),
        (&*long, "subdomain: sub", Ok(long.as_str())),
        (&*long, "subdomain: sub, setHostnameAsFQDN: true", Err(67)),
    ] {
        let found =
            kernel_name(pod, "shop", &spec(&format!("{{containers: [], {fields}}}")), "cluster.local");
        let expect = expect.map(str::to_owned).map_err(|length| {
            format!(
                "failed to construct FQDN from Pod hostname and cluster domain, FQDN {pod}.sub.shop.svc.cluster.local is too long \
                 (64 characters is the max, {length} characters requested)"
            )
        });
        assert_eq!(found.map_err(|error| error.to_string()), expect, "{fields}");
    }
}

/// Source: `TestManagedHostsFileContent` of upstream's `pkg/kubelet`.
#[test]
fn hosts_name_the_pod_and_its_aliases() {
    let aliases = [
        HostAlias { ip: "1.2.3.4".into(), hostnames: Some(vec!["a".into(), "b".into()]) },
        HostAlias { ip: "fd00::7".into(), hostnames: Some(vec!["c".into()]) },
    ];
    let ips = ["10.42.0.2".to_owned(), "fd00::6".to_owned()];
    expect![[r#"
        # Kubernetes-managed hosts file.
        127.0.0.1	localhost
        ::1	localhost ip6-localhost ip6-loopback
        fe00::0	ip6-localnet
        fe00::0	ip6-mcastprefix
        fe00::1	ip6-allnodes
        fe00::2	ip6-allrouters
        10.42.0.2	web-0.web.shop.svc.cluster.local	web-0
        fd00::6	web-0.web.shop.svc.cluster.local	web-0

        # Entries added by HostAliases.
        1.2.3.4	a	b
        fd00::7	c
    "#]]
    .assert_eq(&hosts(&ips, "web-0", Some("web-0.web.shop.svc.cluster.local"), &aliases));
    let plain = hosts(&ips[..1], "web", None, &[]);
    assert!(plain.ends_with("fe00::2\tip6-allrouters\n10.42.0.2\tweb\n"), "{plain}");
}

/// Source: `TestNodeHostsFileContent` of upstream's `pkg/kubelet`.
#[test]
fn the_hosts_file_is_taken_as_it_is() {
    const FILE: &str = "# of the host\n127.0.0.1\tlocalhost\n123.45.67.89\tsome.domain\n";
    let plain = format!("# Kubernetes-managed hosts file (host network).\n{FILE}");
    assert_eq!(host_network_hosts(FILE, &[]), plain);
    let aliases = [HostAlias { ip: "1.2.3.4".into(), hostnames: Some(vec!["a".into(), "b".into()]) }];
    let expect = format!("{plain}\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n");
    assert_eq!(host_network_hosts(FILE, &aliases), expect);
}
