//! A webhook that a kubeconfig names: the server of its current context, and who this server is there.
//!
//! Only HTTPS leads there, and its certificate is always checked: what a file asks for beyond that is refused, not left
//! out. Source: `LoadKubeconfig` of `k8s.io/apiserver/pkg/util/webhook`.

use std::path::Path;
use std::sync::Arc;

use base::Tasks;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;

use tokio::net::TcpStream;
use tunnel::Connection;

use super::address::Address;
use super::credentials::{Credential, credential};
use super::{Client, Config, ConnectionError, Dial, ServiceReference};
use crate::configuration_error::{self, ConfigurationError, ReadFile};

/// The target of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address, and the authorities for it.
    pub config: Config,
    /// The credential that this server shows.
    pub credential: Credential,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct File {
    current_context: String,
    contexts: Vec<Named>,
    clusters: Vec<Named>,
    users: Vec<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    context: Value,
    cluster: Value,
    user: Value,
}

/// Who asks, apart from admission.
const AGENT: &str = "kube-apiserver";

/// Connects to wherever a file of this host's administrator leads, as any program of theirs would: often that is this
/// host itself.
#[derive(Clone, Copy, Debug)]
struct Anywhere;

impl Dial for Anywhere {
    fn host<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Result<Connection, ConnectionError>> {
        Box::pin(async move {
            let connected = TcpStream::connect((host, port)).await.and_then(Connection::direct);
            connected.map_err(|source| ConnectionError::Dial { authority: format!("{host}:{port}"), source })
        })
    }

    fn service<'a>(&'a self, _: &'a ServiceReference) -> BoxFuture<'a, Result<Connection, ConnectionError>> {
        Box::pin(async { Err(ConnectionError::Service) })
    }
}

/// What is not done here, and would be missed.
const REFUSED: [&str; 3] = ["insecure-skip-tls-verify", "proxy-url", "tls-server-name"];

impl Target {
    /// Reads a kubeconfig file; other files that it names lie beside it unless they say where.
    ///
    /// # Errors
    /// What is wrong with it, or what it asks for and is not done here.
    pub fn load(path: &str, read: impl ReadFile) -> Result<Self, ConfigurationError> {
        let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
        Self::parse(&read(path)?, |file| {
            let file = folder.join(file);
            read(file.to_str().ok_or("the name of a file is no text")?)
        })
    }

    /// A client for it. Its connections live in `tasks`.
    ///
    /// # Errors
    /// That the certificates or credentials cannot be used.
    pub fn client(&self, tasks: &Tasks) -> Result<Arc<Client>, ConfigurationError> {
        Client::new(&self.config, &self.credential, Arc::new(Anywhere), tasks, AGENT).map(Arc::new)
    }

    fn parse(text: &str, read: impl ReadFile) -> Result<Self, ConfigurationError> {
        let file: File = configuration_error::read(text)?;
        let named = |list: &str, all: &[Named], name: &str| match all.iter().position(|one| one.name == name)
        {
            Some(found) => Ok(found),
            None => Err(ConfigurationError::rule(format!("{list}: there is none named {name:?}"))),
        };
        let entry = |all: &[Named], at: usize, field: fn(&Named) -> &Value| {
            all.get(at).map(|one| field(one).clone()).unwrap_or_default()
        };
        let context = named("contexts", &file.contexts, &file.current_context)?;
        let context = entry(&file.contexts, context, |one| &one.context);
        let text = |field: &str| context.get(field).and_then(Value::as_str).unwrap_or_default();
        let cluster = named("clusters", &file.clusters, text("cluster"))?;
        let cluster = entry(&file.clusters, cluster, |one| &one.cluster);
        let user = match text("user") {
            "" => Value::Null,
            name => entry(&file.users, named("users", &file.users, name)?, |one| &one.user),
        };
        Ok(Self {
            config: config(&cluster, &read)
                .map_err(ConfigurationError::of(format!("clusters: {:?}", text("cluster"))))?,
            credential: credential(&user, &read)
                .map_err(ConfigurationError::of(format!("users: {:?}", text("user"))))?,
        })
    }
}

fn config(cluster: &Value, read: &impl ReadFile) -> Result<Config, ConfigurationError> {
    let text = |field: &str| cluster.get(field).and_then(Value::as_str).unwrap_or_default();
    let is_set = |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && value != "";
    if let Some(field) = REFUSED.into_iter().find(|field| cluster.get(*field).is_some_and(is_set)) {
        return Err(ConfigurationError::rule(format!("{field} is not supported for webhooks")));
    }
    let address = Address::of_url(text("server")).map_err(ConfigurationError::of("server"))?;
    let ca_bundle = match (text("certificate-authority-data"), text("certificate-authority")) {
        ("", "") => Vec::new(),
        ("", path) => read(path)?.into_bytes(),
        (data, _) => {
            STANDARD.decode(data.trim()).map_err(ConfigurationError::of("certificate-authority-data"))?
        }
    };
    Ok(Config { address, ca_bundle })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration_error::Cause;

    fn read(path: &str) -> Result<String, Cause> {
        match path {
            "/etc/hooks/ca.crt" => Ok("an authority".to_owned()),
            "/token" => Ok("secret\n".to_owned()),
            other => Err(format!("{other} is gone").into()),
        }
    }

    fn parse(cluster: &str, user: &str) -> Result<Target, ConfigurationError> {
        let text = format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {cluster}}}], users: [{{name: u, user: {user}}}, {{name: '*', user: {{token: other}}}}]}}"
        );
        let all = |path: &str| if path == "/etc/hooks/file" { Ok(text.clone()) } else { read(path) };
        Target::load("/etc/hooks/file", all)
    }

    #[test]
    fn the_current_context_says_where_and_as_whom() {
        let target = parse(
            "{server: 'https://authz.example:8443/authorize', certificate-authority: ca.crt}",
            "{tokenFile: /token}",
        )
        .unwrap();
        assert_eq!(target.config.address.url(), "https://authz.example:8443/authorize");
        assert_eq!(target.config.ca_bundle, b"an authority");
        assert_eq!(target.credential.authorization().unwrap().unwrap().to_str().unwrap(), "Bearer secret");
    }

    #[test]
    fn what_would_be_less_safe_or_is_not_there_is_refused() {
        for (cluster, user, expect) in [
            ("{server: 'http://authz.example'}", "{}", "'https' is the only allowed URL scheme"),
            (
                "{server: 'https://a.example', insecure-skip-tls-verify: true}",
                "{}",
                "insecure-skip-tls-verify",
            ),
            ("{server: 'https://a.example', proxy-url: 'http://p'}", "{}", "proxy-url is not supported"),
            (
                "{server: 'https://a.example', certificate-authority: other.crt}",
                "{}",
                "/etc/hooks/other.crt is gone",
            ),
            (
                "{server: 'https://a.example', certificate-authority-data: '%'}",
                "{}",
                "certificate-authority-data",
            ),
            ("{}", "{}", "server: "),
            ("{server: 'https://a.example'}", "{exec: {command: x}}", "exec is not supported"),
            ("{server: 'https://a.example'}", "{tokenFile: gone}", "/etc/hooks/gone is gone"),
        ] {
            let failure = base::error_chain(&parse(cluster, user).unwrap_err());
            assert!(failure.contains(expect), "{cluster} {user}: {failure}");
        }
        for (text, expect) in [
            ("{}", "contexts: there is none named \"\""),
            ("{current-context: c, contexts: [{name: c, context: {cluster: k}}]}", "clusters: there is none"),
            ("[", ""),
        ] {
            let failure = base::error_chain(&Target::load("/f", |_| Ok(text.to_owned())).unwrap_err());
            assert!(failure.contains(expect), "{text}: {failure}");
        }
    }
}
