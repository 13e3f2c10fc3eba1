//! Flags of the commands that only look: `status`, `trace`, `why`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::usage_error::UsageError;

/// Which cluster: by its folder on this host, or by a kubeconfig.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// The cluster's folder; what KUBECONFIG names if not given, else /var/lib/knarr
    #[arg(long, env = "KNARR_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// How to reach the API server
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

/// Flags of `trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// KIND/NAME or KIND NAME, such as deployment/web
    #[arg(value_name = "OBJECT", required = true, num_args = 1..=2)]
    pub object: Vec<String>,
    /// The object's namespace; that of the kubeconfig's context if not given
    #[arg(long, short)]
    pub namespace: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How to print; -v also shows status updates
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// The form of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Flags of `status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Flags of `why`.
#[derive(Clone, Debug, Args)]
pub struct WhyArgs {
    /// KIND/NAME or KIND NAME, such as deployment/web or pod/web-7d4b9; everything that is wrong if not given
    #[arg(value_name = "OBJECT", num_args = 0..=2)]
    pub object: Vec<String>,
    /// The object's namespace; that of the kubeconfig's context if not given, and all of them without an object
    #[arg(long, short)]
    pub namespace: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// End with exit code 1 if something is wrong; without it 0 says that the question was answered
    #[arg(long)]
    pub exit_code: bool,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// The kind and the name in `KIND/NAME` or `KIND NAME`, as kubectl takes them.
///
/// # Errors
/// It is neither.
pub fn object(words: &[String]) -> Result<Option<(&str, &str)>, UsageError> {
    let found = match words {
        [] => return Ok(None),
        [kind, name] if !kind.contains('/') && !name.contains('/') => Some((kind.as_str(), name.as_str())),
        [one] => one.split_once('/'),
        _ => None,
    };
    match found.filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/')) {
        Some(found) => Ok(Some(found)),
        None => {
            let words = words.join(" ");
            Err(UsageError(format!("{words:?} is not KIND/NAME or KIND NAME, such as deployment/web")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_kubectl_names_them() {
        let check = |words: &[&str], expected: Option<(&str, &str)>| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            assert_eq!(object(&words).ok().flatten(), expected, "{words:?}");
        };
        check(&[], None);
        check(&["deploy/web"], Some(("deploy", "web")));
        check(&["deploy", "web"], Some(("deploy", "web")));
        for wrong in [&["web"][..], &["/web"], &["pod/"], &["pod/a", "b"], &["pod", "a/b"], &["a/b/c"]] {
            let words: Vec<String> = wrong.iter().map(|&word| word.to_owned()).collect();
            assert!(object(&words).is_err(), "{wrong:?}");
        }
    }
}
