mod documents;

use super::*;

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|it| (*it).to_owned()).collect()
}

#[test]
fn commands_and_arguments_follow_the_kubernetes_table() {
    let image = ImageConfig {
        entrypoint: strings(&["/entry"]),
        cmd: strings(&["default"]),
        ..ImageConfig::default()
    };
    let check = |command: &[&str], arguments: &[&str], expect: &[&str]| {
        let config =
            v1::ContainerConfig { command: strings(command), args: strings(arguments), ..Default::default() };
        assert_eq!(args(&config, &image), expect);
    };
    check(&[], &[], &["/entry", "default"]);
    check(&[], &["a"], &["/entry", "a"]);
    check(&["sh"], &[], &["sh"]);
    check(&["sh"], &["-c"], &["sh", "-c"]);
}

#[test]
fn capabilities_are_the_default_ones_plus_added_minus_dropped() {
    let all = strings(&["CAP_CHOWN", "CAP_KILL", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
    let check = |add: &[&str], drop: &[&str], expect: Result<&[&str], &str>| {
        let wanted = v1::Capability {
            add_capabilities: strings(add),
            drop_capabilities: strings(drop),
            ..Default::default()
        };
        let context = v1::LinuxContainerSecurityContext { capabilities: Some(wanted), ..Default::default() };
        let expect = expect.map(strings).map_err(str::to_owned);
        let found = capabilities(&context, &all).map_err(|refusal| refusal.to_string());
        assert_eq!(found, expect, "+{add:?} -{drop:?}");
    };
    check(&[], &[], Ok(&["CAP_CHOWN", "CAP_KILL"]));
    check(&["NET_ADMIN"], &["kill"], Ok(&["CAP_CHOWN", "CAP_NET_ADMIN"]));
    check(&["NET_ADMIN"], &["ALL"], Ok(&["CAP_NET_ADMIN"]));
    check(&["ALL"], &["CAP_SYS_ADMIN"], Ok(&["CAP_CHOWN", "CAP_KILL", "CAP_NET_ADMIN"]));
    check(&["FLY"], &[], Err("unknown capability \"FLY\""));
}
