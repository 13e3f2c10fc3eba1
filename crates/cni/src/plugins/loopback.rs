//! `loopback`: `lo`, up. It goes with its namespace, so DEL has nothing to do.

use std::net::Ipv4Addr;

use sys::netlink::Route;
use sys::netns::NetNs;

use crate::attachment::Attachment;
use crate::types::{CniError, CniResult, Interface, IpConfig};

const NAME: &str = "lo";

/// What came before it is what it answers.
pub(super) fn add(attachment: &Attachment, previous: Option<CniResult>) -> Result<CniResult, CniError> {
    NetNs::open(&attachment.netns_path)?.run(|| Route::open()?.loopback_up())?;
    Ok(previous.unwrap_or_else(|| CniResult {
        interfaces: vec![Interface {
            name: NAME.to_owned(),
            mac: "00:00:00:00:00:00".to_owned(),
            sandbox: attachment.netns_path.display().to_string(),
            ..Interface::default()
        }],
        ips: vec![IpConfig {
            address: format!("{}/8", Ipv4Addr::LOCALHOST),
            interface: Some(0),
            ..IpConfig::default()
        }],
        ..CniResult::default()
    }))
}

pub(super) fn check(attachment: &Attachment) -> Result<(), CniError> {
    let link = NetNs::open(&attachment.netns_path)?.run(|| Route::open()?.link(NAME))?;
    if link.is_some_and(|link| link.is_up) {
        return Ok(());
    }
    Err(CniError::Check(format!("link {NAME} is down in {}", attachment.netns_path.display())))
}
