//! Sockets of KMS plugins, as configurations name them.

/// Where a plugin listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    /// A file.
    Path(String),
    /// A name in Linux' abstract namespace.
    Abstract(String),
}

/// Why nobody can listen there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("unsupported scheme {0:?} for remote KMS provider")]
    Scheme(String),
    #[error("endpoint must be the absolute path of a socket")]
    Path,
}

/// Reads `unix:///run/kms.sock` or `unix:///@name`. Source: `k8s.io/kms/pkg/util.ParseEndpoint`.
pub(crate) fn socket_of(endpoint: &str) -> Result<Socket, EndpointError> {
    let Some(rest) = endpoint.strip_prefix("unix:") else {
        let scheme = endpoint.split(':').next().unwrap_or_default();
        return Err(EndpointError::Scheme(scheme.to_owned()));
    };
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default(),
        None => rest,
    };
    if let Some(name) = path.strip_prefix("/@") {
        return Ok(Socket::Abstract(name.to_owned()));
    }
    if path.len() < 2 || !path.starts_with('/') {
        return Err(EndpointError::Path);
    }
    Ok(Socket::Path(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_files_or_abstract_names() {
        assert_eq!(socket_of("unix:///run/kms.sock"), Ok(Socket::Path("/run/kms.sock".into())));
        assert_eq!(socket_of("unix:///@kms"), Ok(Socket::Abstract("kms".into())));
        for wrong in ["unix://", "unix:///", "unix://host", "tcp://a", ""] {
            assert!(socket_of(wrong).is_err(), "{wrong}");
        }
    }
}
