//! What the flags of the audit webhook come to.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use apiserver::audit::webhook::{Batch, Config, Mode, Rate, Truncate};
use apiserver::webhook_client::kubeconfig::Target;
use cli::api_server::AuditWebhookArgs;

use super::configuration::read_named;

const FLAG: &str = "--audit-webhook-config-file";
const VERSION: &str = "audit.k8s.io/v1";

/// Reads what the flags name; `None` without a webhook.
///
/// # Errors
/// What is wrong with them.
pub(super) fn load(args: &AuditWebhookArgs) -> Result<Option<Config>> {
    let Some(path) = &args.audit_webhook_config_file else { return Ok(None) };
    let path = path.to_str().with_context(|| format!("{FLAG}: its name is no text"))?;
    let version = args.audit_webhook_version.as_deref().unwrap_or(VERSION);
    if version != VERSION {
        bail!("--audit-webhook-version: invalid group version, allowed versions are [{VERSION:?}]");
    }
    let target = Target::load(path, |file: &str| Ok(read_named(file)?));
    let config = Config {
        target: target.with_context(|| format!("{FLAG}: {path}"))?,
        mode: args.audit_webhook_mode.as_deref().map_or(Ok(Mode::Batch), Mode::parse)?,
        initial_backoff: args.audit_webhook_initial_backoff.map_or(Duration::from_secs(10), |given| given.0),
        batch: batch(args)?,
        truncate: truncate(args),
    };
    config.check()?;
    Ok(Some(config))
}

fn batch(args: &AuditWebhookArgs) -> Result<Batch> {
    let usual = Batch::default();
    let (rate, burst) = usual.throttle.unwrap_or((Rate(10_000), 15));
    let rate = args.audit_webhook_batch_throttle_qps.as_deref().map_or(Ok(rate), rate_of)?;
    let burst = args.audit_webhook_batch_throttle_burst.unwrap_or(burst);
    let is_throttled = args.audit_webhook_batch_throttle_enable.unwrap_or(true);
    Ok(Batch {
        buffer_size: args.audit_webhook_batch_buffer_size.unwrap_or(usual.buffer_size),
        size_max: args.audit_webhook_batch_max_size.unwrap_or(usual.size_max),
        wait_max: args.audit_webhook_batch_max_wait.map_or(usual.wait_max, |given| given.0),
        throttle: is_throttled.then_some((rate, burst)),
    })
}

/// So many a second, with up to three decimal places.
fn rate_of(text: &str) -> Result<Rate> {
    let number: f64 =
        text.parse().with_context(|| format!("--audit-webhook-batch-throttle-qps: {text:?} is no number"))?;
    if !(0.001..=1e6).contains(&number) {
        bail!("invalid audit batch webhook throttle QPS {text}, must be a positive number");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within these bounds")]
    Ok(Rate((number * 1000.0).round() as u64))
}

fn truncate(args: &AuditWebhookArgs) -> Option<Truncate> {
    let usual = Truncate::default();
    args.audit_webhook_truncate_enabled.then(|| Truncate {
        batch_bytes_max: args.audit_webhook_truncate_max_batch_size.unwrap_or(usual.batch_bytes_max),
        event_bytes_max: args.audit_webhook_truncate_max_event_size.unwrap_or(usual.event_bytes_max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_upstreams_defaults_and_must_make_sense() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hook");
        let kubeconfig = "{current-context: c, contexts: [{name: c, context: {cluster: k}}], \
                          clusters: [{name: k, cluster: {server: 'https://audit.example'}}]}";
        std::fs::write(&path, kubeconfig).unwrap();
        assert!(load(&AuditWebhookArgs::default()).unwrap().is_none());
        let with = |change: fn(&mut AuditWebhookArgs)| {
            let mut args = AuditWebhookArgs {
                audit_webhook_config_file: Some(path.clone()),
                ..AuditWebhookArgs::default()
            };
            change(&mut args);
            load(&args).map(Option::unwrap).map_err(|failure| format!("{failure:#}"))
        };
        let usual = with(|_| {}).unwrap();
        assert_eq!((usual.mode, usual.batch, usual.truncate), (Mode::Batch, Batch::default(), None));
        assert_eq!(usual.initial_backoff, Duration::from_secs(10));
        let slow = with(|args| args.audit_webhook_batch_throttle_qps = Some("0.5".to_owned())).unwrap();
        assert_eq!(slow.batch.throttle, Some((Rate(500), 15)));
        let free = with(|args| args.audit_webhook_batch_throttle_enable = Some(false)).unwrap();
        assert_eq!(free.batch.throttle, None);
        let check = |change: fn(&mut AuditWebhookArgs), expect: &str| {
            let failure = with(change).unwrap_err();
            assert!(failure.contains(expect), "{failure}");
        };
        check(|args| args.audit_webhook_mode = Some("now".to_owned()), "invalid audit webhook mode now");
        check(
            |args| args.audit_webhook_version = Some("audit.k8s.io/v1beta1".to_owned()),
            "invalid group version",
        );
        check(
            |args| args.audit_webhook_batch_throttle_qps = Some("-1".to_owned()),
            "must be a positive number",
        );
        check(
            |args| args.audit_webhook_batch_throttle_qps = Some("NaN".to_owned()),
            "must be a positive number",
        );
        check(|args| args.audit_webhook_batch_max_size = Some(0), "max batch size 0");
        check(|args| args.audit_webhook_config_file = Some("/gone".into()), "stat /gone: ");
    }
}
