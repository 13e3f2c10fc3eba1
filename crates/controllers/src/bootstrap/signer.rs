//! Signs the kubeconfig in the ConfigMap `cluster-info` of `kube-public` with every bootstrap token that may sign, so
//! that who has one can trust what anybody may read.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::bootstrap_token;
use controller::metadata::name;
use controller::{Action, Controller, Plan, Scope, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::{Left, field, left, tokens};

const KEY: &str = "kube-public/cluster-info";
/// What is signed.
const CONTENT: &str = "kubeconfig";
/// Before the token's id: the name of its signature.
const SIGNATURE: &str = "jws-kubeconfig-";

/// The controller's row. There is one key: the ConfigMap.
pub const CONTROLLER: Controller = Controller {
    name: "bootstrap-signer-controller",
    queue: "bootstrap_signer_queue",
    sources: |_| {
        vec![
            Source::scoped::<ConfigMap>(cluster_info(), |_, _| vec![KEY.to_owned()]),
            Source::scoped::<Secret>(tokens(), |_, _| vec![KEY.to_owned()]),
        ]
    },
    reconcile: |informers, key, now| {
        let Some(info) = informers.scoped::<ConfigMap>(cluster_info()).get(key) else {
            return Plan::nothing();
        };
        plan(&info, &informers.scoped::<Secret>(tokens()).list(), now)
    },
};

fn cluster_info() -> Scope {
    Scope {
        namespace: Some("kube-public".to_owned()),
        field_selector: Some("metadata.name=cluster-info".to_owned()),
        ..Scope::default()
    }
}

/// Decides which signatures the ConfigMap has.
pub fn plan(info: &ConfigMap, secrets: &[Arc<Secret>], now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(data) = &info.data else { return plan };
    let Some(content) = data.get(CONTENT) else { return plan };
    let mut wanted: BTreeMap<String, String> = data.clone();
    wanted.retain(|key, _| !key.starts_with(SIGNATURE));
    for secret in secrets {
        let Some((id, key)) = signing(secret) else { continue };
        match left(secret, now) {
            Left::Over => continue,
            Left::For(left) => plan.requeue(left),
            Left::Forever => {}
        }
        wanted.insert(format!("{SIGNATURE}{id}"), bootstrap_token::sign(content, &id, &key));
    }
    if wanted != *data {
        plan.push(Action::update(&ConfigMap { data: Some(wanted), ..info.clone() }));
    }
    plan
}

/// The id and the key of a token that may sign.
fn signing(secret: &Secret) -> Option<(String, String)> {
    let (id, key) = (field(secret, "token-id"), field(secret, "token-secret"));
    let is_token = bootstrap_token::is_id(&id) && name(&secret.metadata) == bootstrap_token::secret_name(&id);
    let may_sign = field(secret, "usage-bootstrap-signing") == "true";
    (is_token && may_sign && !key.is_empty()).then_some((id, key))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;
    use crate::fixture::{noon, parse, render};

    fn token(change: (&str, &str)) -> Arc<Secret> {
        let mut secret: Secret = parse("{metadata: {name: bootstrap-token-abcdef, namespace: kube-system}}");
        let fields = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-signing", "true"),
            change,
        ];
        secret.data =
            Some(fields.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into()))).collect());
        Arc::new(secret)
    }

    /// Which signatures there are after the plan.
    fn check(what: &str, data: &str, secrets: &[Arc<Secret>], expect: &str) {
        let info: ConfigMap = parse(&format!("{{metadata: {{name: cluster-info}}, data: {data}}}"));
        let plan = plan(&info, secrets, noon());
        let written = plan.actions().find_map(|action| match action {
            Action::Request(request) => Some(request.body["data"].clone()),
            Action::Event(_) | Action::Count(_) | Action::Operation(_) => None,
        });
        let told = match written {
            Some(data) => data.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" "),
            None => render(&plan),
        };
        assert_eq!(told, expect, "{what}");
    }

    #[test]
    fn what_can_be_trusted_is_signed_with_tokens_that_may_sign() {
        let signed = "jws-kubeconfig-abcdef kubeconfig";
        let good = token(("expiration", ""));
        check("new", "{kubeconfig: x}", std::slice::from_ref(&good), signed);
        check("nothing to sign", "{other: x}", std::slice::from_ref(&good), "");
        check("no tokens", "{kubeconfig: x}", &[], "");
        check("a token that went", "{kubeconfig: x, jws-kubeconfig-zzzzzz: s}", &[], "kubeconfig");
        check(
            "of other content",
            "{kubeconfig: x, jws-kubeconfig-abcdef: s}",
            std::slice::from_ref(&good),
            signed,
        );
        let as_it_is = bootstrap_token::sign("x", "abcdef", "0123456789abcdef");
        let done = format!("{{kubeconfig: x, jws-kubeconfig-abcdef: {as_it_is}}}");
        check("signed", &done, std::slice::from_ref(&good), "");
        let ends = token(("expiration", "2026-01-01T12:01:00Z"));
        check("signed for a while", &done, &[ends], "again after 60s\n");
    }

    #[test]
    fn no_other_secret_signs() {
        for change in [
            ("token-id", "zzzzzz"),
            ("token-id", ""),
            ("token-secret", ""),
            ("usage-bootstrap-signing", "false"),
            ("usage-bootstrap-signing", "TRUE"),
            ("expiration", "2026-01-01T11:59:00Z"),
            ("expiration", "never"),
        ] {
            check(&format!("{change:?}"), "{kubeconfig: x}", &[token(change)], "");
        }
        let mut odd = (*token(("token-id", "ABCDEF"))).clone();
        odd.metadata.name = Some("bootstrap-token-ABCDEF".to_owned());
        check("no id", "{kubeconfig: x}", &[Arc::new(odd)], "");
    }
}
