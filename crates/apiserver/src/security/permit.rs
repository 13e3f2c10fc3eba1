//! That somebody may do what they ask for, as a value.

use auth::UserInfo;

use super::Security;
use crate::request_info::RequestInfo;
use crate::status::Result;

/// The proof that somebody may do what they ask for. Only [`Security::permit`] makes one, and the server for itself.
#[derive(Clone, Debug)]
pub struct Permit {
    user: UserInfo,
    reason: String,
    is_servers: bool,
}

impl Permit {
    /// What the server does on its own account.
    pub(crate) fn server() -> Self {
        Self { user: system_user(), reason: String::new(), is_servers: true }
    }

    /// The user.
    pub fn user(&self) -> &UserInfo {
        &self.user
    }

    /// `true` if it is the server's own account, and not that of somebody who may be called the same.
    pub fn is_servers(&self) -> bool {
        self.is_servers
    }

    /// The reason why they may.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// The API server's own identity. It may everything because it makes the roles that everybody else's rights come from; it
/// is a value in this process and no certificate or token is for it. Source: upstream's loopback client.
pub fn system_user() -> UserInfo {
    UserInfo {
        name: "system:apiserver".to_owned(),
        groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        ..UserInfo::default()
    }
}

impl Security {
    /// Lets a request of somebody who is known pass, or not.
    ///
    /// # Errors
    /// As [`Security::authorize`].
    pub async fn permit(&self, user: UserInfo, info: &RequestInfo) -> Result<Permit> {
        let reason = self.authorize(&user, info).await?;
        Ok(Permit { user, reason, is_servers: false })
    }
}
