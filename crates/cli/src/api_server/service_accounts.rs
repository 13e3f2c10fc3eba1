//! Flags about the tokens of ServiceAccounts. Names are kube-apiserver's.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;

/// Who signs tokens, by what they are checked, and for whom they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceAccountArgs {
    /// Keys that ServiceAccounts' tokens may be signed by, PEM: public, private or in certificates, several in a file; may be
    /// given several times. The signing key must be among them; without --service-account-signing-key-file the cluster's own
    /// is, too
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,
    /// The private key that signs ServiceAccounts' tokens, PEM; the cluster's own if not given
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Who issues ServiceAccounts' tokens: an https URL, if others are to find the keys there; may be given several times, then
    /// the first signs and all are believed
    #[arg(long, value_name = "URL")]
    pub service_account_issuer: Vec<String>,
    /// Where discovery says that the issuer's keys are; this server's own address if not given
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// Whom a token must be for to count here; the issuers if not given
    #[arg(long, value_name = "AUDIENCES", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// How long a token lasts at most, whatever is asked for: an hour or more; as long as is asked for if 0
    #[arg(long, default_value = "0s", value_name = "DURATION")]
    pub service_account_max_token_expiration: GoDuration,
    /// Have the tokens that Pods get last a year, for those who read theirs only once: who uses one after its hour is in the
    /// audit log. kube-apiserver does so unless told not to
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub service_account_extend_token_expiration: bool,
}

impl ServiceAccountArgs {
    /// The files that are only read.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.service_account_key_file.iter_mut().chain(&mut self.service_account_signing_key_file)
    }
}
