//! Navigation: the sections that a visitor's role may see.

use url::form_urlencoded::Serializer;

use crate::domain::id::TenantId;
use crate::domain::tenant::{Action, Role};
use crate::gateway::Caller;

/// Part of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// The first page.
    Overview,
    /// Records of attempts.
    Activity,
    /// Upstream servers and their tools.
    Servers,
    /// Calls by hand.
    Try,
    /// Permission requests and grants.
    Permissions,
    /// Policy of the tenant.
    Policy,
    /// API keys.
    Keys,
    /// People of identity providers.
    People,
    /// Settings of the tenant.
    Settings,
    /// Tenants of the deployment.
    Tenants,
}

impl Section {
    const ALL: [Section; 10] = [
        Section::Overview,
        Section::Activity,
        Section::Servers,
        Section::Try,
        Section::Permissions,
        Section::Policy,
        Section::Keys,
        Section::People,
        Section::Settings,
        Section::Tenants,
    ];

    /// Returns the path of the section's first page.
    pub(super) fn href(self) -> &'static str {
        match self {
            Section::Overview => super::HOME,
            Section::Activity => "/console/activity",
            Section::Servers => "/console/servers",
            Section::Try => "/console/try",
            Section::Permissions => "/console/permissions",
            Section::Policy => "/console/policy",
            Section::Keys => "/console/keys",
            Section::People => "/console/people",
            Section::Settings => "/console/settings",
            Section::Tenants => super::TENANTS,
        }
    }

    /// Returns the name of the section.
    pub(super) fn name(self) -> &'static str {
        match self {
            Section::Overview => "Overview",
            Section::Activity => "Activity",
            Section::Servers => "Servers",
            Section::Try => "Try",
            Section::Permissions => "Permissions",
            Section::Policy => "Policy",
            Section::Keys => "Keys",
            Section::People => "People",
            Section::Settings => "Settings",
            Section::Tenants => "Tenants",
        }
    }

    /// Returns whether a caller may see the section. Servers, permission requests and keys are a tenant's.
    pub(super) fn is_open_to(self, caller: &Caller) -> bool {
        let needs = match self {
            Section::Overview => return true,
            Section::Activity => return caller.role.may(Action::ReadOwnActivity),
            Section::Tenants => return caller.role.may(Action::ManageTenants),
            Section::Servers => Action::SeeServers,
            Section::Permissions => Action::SeeOwnConsent,
            Section::Policy => Action::SeePolicies,
            Section::Try => Action::UseTools,
            Section::Keys | Section::People | Section::Settings => Action::ManageKeys,
        };
        caller.role.may(needs) && caller.tenant_id() != TenantId::PLATFORM
    }
}

/// Returns the link to the page of a tool of a server.
pub(super) fn href_of_tool(server: &str, tool: &str) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("tool", tool);
    format!("{}/{server}?{}", Section::Servers.href(), query.finish())
}

/// Link to a section.
pub(super) struct NavLink {
    /// Path of the section.
    pub(super) href: &'static str,
    /// Name of the section.
    pub(super) name: &'static str,
    /// True if the page is one of this section.
    pub(super) is_here: bool,
    /// Number of permission requests that wait; `None` elsewhere, and if none wait.
    pub(super) waiting: Option<i64>,
}

/// Head of a page: links, holder and logout.
pub(super) struct Nav {
    /// Links to the sections that the visitor may see.
    pub(super) links: Vec<NavLink>,
    /// Owner of the visitor's key.
    pub(super) owner: String,
    /// Name of the tenant that the platform operator acts in; `None` for others, and in no tenant.
    pub(super) tenant: Option<String>,
    /// Ids of the visitor's principal and tenant: the script fills a form in again for the same ones alone.
    pub(super) whose: String,
    /// Hidden text of the session's forms.
    pub(super) csrf: String,
}

impl Nav {
    /// Creates the head of a page of the section `here`. `waiting` is the number of permission requests that wait, if it is known.
    pub(super) fn of(caller: &Caller, csrf: String, here: Section, waiting: Option<i64>) -> Nav {
        let link = |section: Section| NavLink {
            href: section.href(),
            name: section.name(),
            is_here: here == section,
            waiting: match section {
                Section::Permissions => waiting.filter(|waiting| *waiting > 0),
                _ => None,
            },
        };
        let open = Section::ALL.into_iter().filter(|section| section.is_open_to(caller));
        let is_in_one = caller.role == Role::Platform && caller.tenant_id() != TenantId::PLATFORM;
        Nav {
            links: open.map(link).collect(),
            owner: caller.owner.clone(),
            tenant: is_in_one.then(|| caller.tenant_name().to_owned()),
            whose: format!(
                "{}/{}",
                caller.key.map(|key| key.to_string()).unwrap_or_default(),
                caller.tenant_id()
            ),
            csrf,
        }
    }
}
