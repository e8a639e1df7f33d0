//! Roles and their rights: the only authorisation table (behaviour, section 3).

use serde::{Deserialize, Serialize};

/// Role of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Finds and calls tools; reads its own key's activity.
    Agent,
    /// Reads the tenant's activity and sees its servers.
    Auditor,
    /// Runs the tenant's servers day to day.
    Operator,
    /// Has all rights within the tenant.
    Admin,
    /// Answers permission requests.
    Approver,
    /// Manages tenants, and acts as admin of the tenant in `X-Tenant`: the deployment's bootstrap key.
    Platform,
}

/// Action that needs a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Use `/mcp`, search or call over REST.
    UseTools,
    /// Read the tenant's activity.
    ReadActivity,
    /// Read the activity of the own key.
    ReadOwnActivity,
    /// See servers and their tools.
    SeeServers,
    /// Add, change, enable, disable, quarantine, remove servers.
    ChangeServers,
    /// Approve definitions, release from quarantine.
    Approve,
    /// See policies, and have them explained.
    SeePolicies,
    /// See permission requests and grants of the tenant.
    SeeConsent,
    /// See the permission requests and grants of the own key, and end grants that it gave.
    SeeOwnConsent,
    /// Decide permission requests.
    DecideConsent,
    /// Manage keys, settings and policies.
    ManageKeys,
    /// Manage tenants.
    ManageTenants,
}

impl Action {
    /// Returns whether the platform may do this in a suspended tenant: read, and manage keys, but call and change nothing.
    pub fn is_open_while_suspended(self) -> bool {
        !matches!(self, Action::UseTools | Action::ChangeServers | Action::Approve | Action::DecideConsent)
    }
}

impl Role {
    /// All roles, [`Role::Platform`] last, which cannot be given to a key.
    pub const ALL: [Role; 6] =
        [Role::Agent, Role::Auditor, Role::Operator, Role::Admin, Role::Approver, Role::Platform];

    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Agent => "agent",
            Role::Auditor => "auditor",
            Role::Operator => "operator",
            Role::Admin => "admin",
            Role::Approver => "approver",
            Role::Platform => "platform",
        }
    }

    /// Parses a role that can be given to a key, so not `platform`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| *role != Role::Platform && role.as_str() == text)
    }

    /// Returns whether the role has the right to an action. The platform key acts as admin of the tenant that it names.
    pub fn may(self, action: Action) -> bool {
        use Action::{
            Approve, ChangeServers, DecideConsent, ManageKeys, ManageTenants, ReadActivity, ReadOwnActivity,
            SeeConsent, SeeOwnConsent, SeePolicies, SeeServers, UseTools,
        };
        match action {
            UseTools => matches!(self, Role::Agent | Role::Operator | Role::Admin | Role::Platform),
            ReadActivity => matches!(self, Role::Auditor | Role::Operator | Role::Admin | Role::Platform),
            ReadOwnActivity => self.may(ReadActivity) || self == Role::Agent,
            SeeServers | SeePolicies => {
                matches!(self, Role::Auditor | Role::Operator | Role::Admin | Role::Platform)
            }
            ChangeServers | Approve => matches!(self, Role::Operator | Role::Admin | Role::Platform),
            SeeConsent => self.may(SeeServers) || self == Role::Approver,
            SeeOwnConsent => self.may(SeeConsent) || self == Role::Agent,
            DecideConsent => matches!(self, Role::Approver | Role::Admin | Role::Platform),
            ManageKeys => matches!(self, Role::Admin | Role::Platform),
            ManageTenants => self == Role::Platform,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        use Action::*;
        let rows: [(Role, &[Action]); 6] = [
            (Role::Agent, &[UseTools, ReadOwnActivity, SeeOwnConsent]),
            (
                Role::Auditor,
                &[ReadActivity, ReadOwnActivity, SeeServers, SeePolicies, SeeConsent, SeeOwnConsent],
            ),
            (
                Role::Operator,
                &[
                    UseTools,
                    ReadActivity,
                    ReadOwnActivity,
                    SeeServers,
                    ChangeServers,
                    Approve,
                    SeePolicies,
                    SeeConsent,
                    SeeOwnConsent,
                ],
            ),
            (
                Role::Admin,
                &[
                    UseTools,
                    ReadActivity,
                    ReadOwnActivity,
                    SeeServers,
                    ChangeServers,
                    Approve,
                    SeePolicies,
                    SeeConsent,
                    SeeOwnConsent,
                    DecideConsent,
                    ManageKeys,
                ],
            ),
            (Role::Approver, &[SeeConsent, SeeOwnConsent, DecideConsent]),
            (
                Role::Platform,
                &[
                    UseTools,
                    ReadActivity,
                    ReadOwnActivity,
                    SeeServers,
                    ChangeServers,
                    Approve,
                    SeePolicies,
                    SeeConsent,
                    SeeOwnConsent,
                    DecideConsent,
                    ManageKeys,
                    ManageTenants,
                ],
            ),
        ];
        let all = [
            UseTools,
            ReadActivity,
            ReadOwnActivity,
            SeeServers,
            ChangeServers,
            Approve,
            SeePolicies,
            SeeConsent,
            SeeOwnConsent,
            DecideConsent,
            ManageKeys,
            ManageTenants,
        ];
        for (role, allowed) in rows {
            for action in all {
                assert_eq!(role.may(action), allowed.contains(&action), "{role:?} {action:?}");
            }
        }
    }

    #[test]
    fn platform_is_not_a_role_of_keys() {
        assert_eq!(Role::parse("platform"), None);
        assert_eq!(Role::parse("admin"), Some(Role::Admin));
    }
}
