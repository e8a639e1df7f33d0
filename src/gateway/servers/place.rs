//! Location of a server: a URL, or a program of the deployment.

use super::Servers;
use super::requests::{ServerChange, ServerRequest};
use crate::domain::server_kind::ServerKind;
use crate::domain::server_url::{ServerPlace, is_masked};
use crate::domain::tenant::Role;
use crate::domain::web_page::settings::PageSettings;
use crate::gateway::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::{Server, ServerPatch};

/// Advice for somebody who names a program that the deployment does not offer.
const HOW_TO_OFFER: &str = "the gateway's operator adds a program under stdio.commands in its settings file, then runs mcpproxy \
                            reload; mcpproxy upstream add NAME -- PROGRAM ARGUMENTS prints what to add";

/// Location of a new server.
pub(super) struct NewPlace {
    pub(super) kind: ServerKind,
    pub(super) url: Option<String>,
    pub(super) command: Option<String>,
    pub(super) pages: Option<PageSettings>,
}

/// Checks whether a change may keep the server's credentials, if it asks for that.
pub(super) fn check_keeping(caller: &Caller, change: &ServerChange) -> Result<(), GatewayError> {
    if !change.keep_credentials {
        return Ok(());
    }
    if caller.role == Role::Operator {
        return Err(GatewayError::Forbidden(
            "Only an admin can keep a server's credentials at another place. Leave keep_credentials out, and give the \
             headers again."
                .to_owned(),
        ));
    }
    let fault = match (&change.url, &change.headers) {
        (None, _) => "keep_credentials needs the url that the credentials are kept for",
        (Some(_), Some(_)) => {
            "keep_credentials and headers exclude each other: headers replace the credentials"
        }
        (Some(_), None) => return Ok(()),
    };
    Err(GatewayError::invalid("keep_credentials", fault))
}

/// Returns the faults of fields that servers of other kinds have; none for an unknown kind.
pub(super) fn foreign_fields(request: &ServerRequest) -> Vec<GatewayError> {
    let url = ("url", request.url.is_some());
    let command = ("command", request.command.is_some());
    let headers = ("headers", request.headers.as_ref().is_some_and(|headers| !headers.is_empty()));
    let (fields, instead) = match ServerKind::parse(&request.kind) {
        Some(ServerKind::WebPage) => (vec![url, command, headers], ": name its pages"),
        Some(ServerKind::Http) => (vec![command], ""),
        Some(ServerKind::Stdio) => (vec![url, headers], ": its command is all it takes"),
        Some(ServerKind::Unknown(_)) | None => return Vec::new(),
    };
    let fault = |(field, _)| {
        GatewayError::invalid(field, format!("a server of kind {} has no {field}{instead}", request.kind))
    };
    fields.into_iter().filter(|(_, is_there)| *is_there).map(fault).collect()
}

impl Servers {
    /// Checks the location of a new server. [`foreign_fields`] are ignored.
    pub(super) fn new_place(
        &self,
        caller: &Caller,
        request: &ServerRequest,
    ) -> Result<NewPlace, GatewayError> {
        let kind = ServerKind::parse(&request.kind);
        if kind != Some(ServerKind::WebPage) {
            self.no_pages(&request.kind, &request.pages, request.field_secrets.as_ref())?;
        }
        match kind {
            Some(kind @ ServerKind::WebPage) => {
                let pages = self.new_pages(&request.pages, request.field_secrets.as_ref())?;
                Ok(NewPlace { kind, url: pages.pages.first().cloned(), command: None, pages: Some(pages) })
            }
            Some(kind @ ServerKind::Http) => {
                let url = request.url.clone();
                let url =
                    url.ok_or_else(|| GatewayError::invalid("url", "a server of kind http needs a url"))?;
                self.check_url(&url)?;
                Ok(NewPlace { kind, url: Some(url), command: None, pages: None })
            }
            Some(kind @ ServerKind::Stdio) => {
                let command = request.command.clone().ok_or_else(|| self.no_command(caller))?;
                self.check_command(caller, &command)?;
                Ok(NewPlace { kind, url: None, command: Some(command), pages: None })
            }
            Some(ServerKind::Unknown(_)) | None => {
                let names = ServerKind::NAMES.join(" or ");
                Err(GatewayError::invalid("kind", format!("kind must be {names}")))
            }
        }
    }

    /// Notes a server's new URL or command in the patch. Another place or program counts as another server, whose trust
    /// starts afresh; another query of the URL does not.
    pub(super) fn move_to(
        &self,
        caller: &Caller,
        server: &Server,
        (url, command): (Option<String>, Option<String>),
        patch: &mut ServerPatch,
    ) -> Result<(), GatewayError> {
        if url.is_none() && command.is_none() {
            return Ok(());
        }
        if let Some(url) = url {
            if server.kind != ServerKind::Http {
                let message = format!("a server of kind {} has no url", server.kind.as_str());
                return Err(GatewayError::invalid("url", message));
            }
            self.check_url(&url)?;
            patch.place_changed = ServerPlace::of(&url) != server.url.as_deref().and_then(ServerPlace::of);
            patch.url = Some(url);
        }
        if let Some(command) = command {
            if server.kind != ServerKind::Stdio {
                let message = format!("a server of kind {} has no command", server.kind.as_str());
                return Err(GatewayError::invalid("command", message));
            }
            self.check_command(caller, &command)?;
            patch.place_changed |= server.command.as_ref() != Some(&command);
            patch.command = Some(command);
        }
        // the change must apply to the version that was compared
        patch.version = patch.version.or(Some(server.version));
        Ok(())
    }

    /// Checks the URL of a server, without a request to it.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] for a masked URL, or one that is refused as it stands.
    pub fn check_url(&self, url: &str) -> Result<(), GatewayError> {
        if is_masked(url) {
            let message = "url is masked: its credentials are never shown. Give the whole URL.";
            return Err(GatewayError::invalid("url", message));
        }
        self.egress.check_url(url).map(drop).map_err(|error| GatewayError::invalid("url", error.to_string()))
    }

    /// Checks a command. An unknown one and one of another tenant get the same error.
    fn check_command(&self, caller: &Caller, command: &str) -> Result<(), GatewayError> {
        let found = self.options.commands.find(command, caller.tenant_name());
        found.map(drop).map_err(|_| self.no_command(caller))
    }

    fn no_command(&self, caller: &Caller) -> GatewayError {
        if self.options.commands.are_off() {
            return GatewayError::invalid("kind", "this deployment runs no stdio servers (stdio.enabled)");
        }
        let known = match self.options.commands.names_for(caller.tenant_name()).as_slice() {
            [] => "this deployment has no command for this tenant (stdio.commands)".to_owned(),
            names => format!("command must be one of {}", names.join(", ")),
        };
        GatewayError::invalid("command", format!("{known}; {HOW_TO_OFFER}"))
    }
}
