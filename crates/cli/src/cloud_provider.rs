//! Whether a cloud has a say: `--cloud-provider` of upstream's parts.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::value_error::ValueError;

/// The party that says of Nodes what they are: a cloud's controllers, or the kubelet. Source: `--cloud-provider` of upstream's
/// parts, of which all others have left the tree (KEP-2395).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum CloudProvider {
    /// There is none.
    #[default]
    None,
    /// There is one, whose controllers run beside the cluster's.
    External,
}

impl FromStr for CloudProvider {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Ok(Self::None),
            "external" => Ok(Self::External),
            _ => Err(ValueError::must(
                text,
                "\"\" or \"external\": no cloud is built in; say external, and run the cloud's own controller manager, \
                 or `knarr cloud-controller-manager` with its provider",
            )),
        }
    }
}

impl TryFrom<String> for CloudProvider {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CloudProvider> for String {
    fn from(provider: CloudProvider) -> Self {
        match provider {
            CloudProvider::None => Self::new(),
            CloudProvider::External => "external".to_owned(),
        }
    }
}
