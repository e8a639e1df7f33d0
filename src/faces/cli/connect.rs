//! `mcpproxy connect`: an MCP client is set up for this gateway.

mod clients;
mod edit;
mod replace;
mod successor;

use std::path::Path;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use self::clients::ConnectedClient;
use self::edit::{WrittenServer, server_in, taken_away};
use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, text};
use super::{input, key};
use crate::domain::known_client::KEY_HEADER;

/// Longest time until every replica knows a new key.
const KNOWN_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between retries at a replica that does not know a new key yet.
const KNOWN_PAUSE: Duration = Duration::from_millis(100);
/// Least time that a key in a file must be valid for to be left there.
const KEY_LEFT_MIN: TimeDelta = TimeDelta::days(1);
/// Longest name of a server in a client's file, in characters.
const NAME_CHARS_MAX: usize = 64;

/// `mcpproxy connect`
#[derive(Args)]
pub struct ConnectCommand {
    /// The client
    #[arg(value_enum)]
    client: ConnectedClient,
    /// Name of the gateway in the client: letters, digits, - and _
    #[arg(long, default_value = "mcpproxy")]
    name: String,
    /// Key for the client, of role agent or operator, instead of a new one or the command's own. Prefer the environment: other
    /// users can read command lines [env: MCPPROXY_CLIENT_KEY]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Make a new key (admins), also if the client's file has one that works or was rotated
    #[arg(long, conflicts_with = "key")]
    new_key: bool,
    /// Print the configuration, and the link that installs it, instead of writing it
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    connection: ApiConnection,
}

/// Key of a client.
struct ClientKey {
    secret: String,
    /// Description of a key that was made; `None` for the caller's own.
    made: Option<Value>,
}

impl ConnectCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if self.name.is_empty() || self.name.len() > NAME_CHARS_MAX || !self.name.chars().all(is_word) {
            return Err(Failure::Usage(format!(
                "--name must be 1 to {NAME_CHARS_MAX} letters, digits, - and _"
            )));
        }
        let mut api = self.connection.client()?;
        let given = || self.key.clone().or_else(|| input::variable("MCPPROXY_CLIENT_KEY"));
        if let Some(key) = given().filter(|_| !self.new_key) {
            api = with_key_of_client(&api, &key).await?;
        }
        match self.client.file().filter(|_| !self.print) {
            Some(file) => self.write(&api, &file).await,
            None if self.print => self.show(&api).await,
            None => Err(Failure::Usage("there is no home folder (HOME): use --print".to_owned())),
        }
    }

    /// Prints the configuration.
    async fn show(&self, api: &ApiClient) -> Result<(), Failure> {
        let key = self.key(api).await?;
        let url = api.at("mcp").to_string();
        let text = self.server(&url, &key.secret).added_to("").map_err(Failure::Usage)?;
        output::line(text.trim_end())?;
        if let Some(link) = self.client.known().link(&self.name, &url, &key.secret) {
            output::line(&format!("\n{link}"))?;
        }
        if let Some(file) = self.client.file() {
            output::note(&format!("it belongs into {}", file.display()));
        }
        output::note(&key.told());
        if key.made.is_some() {
            output::note(
                "Each run with --print makes a key: --key KEY or MCPPROXY_CLIENT_KEY takes one that is there.",
            );
        }
        output::note(&told_tools(&check(api, &key).await?));
        Ok(())
    }

    /// Writes the configuration into the client's file, unless what is there works.
    async fn write(&self, api: &ApiClient, file: &Path) -> Result<(), Failure> {
        let shown = file.display();
        let fault = |error: String| {
            Failure::Usage(format!("{shown}: {error}; nothing was done (--print shows what to add)"))
        };
        let old = replace::read(file).map_err(|error| fault(error.to_string()))?;
        let url = api.at("mcp").to_string();
        // a file that cannot be changed is found before a key is made
        self.server(&url, "").added_to(&old).map_err(fault)?;
        let working = if self.new_key { None } else { self.working(api, &old, &url).await? };
        if let Some(tools) = working {
            output::line(&format!("nothing to change: {shown} has {} with a key that works", self.name))?;
            output::line(&told_tools(&tools))?;
            return self.show_command(file);
        }
        let key = self.key(api).await?;
        let new = self.server(&url, &key.secret).added_to(&old).map_err(fault)?;
        let copy = match replace::replace(file, &old, &new) {
            Ok(copy) => copy,
            Err(error) => return Err(key.unwritten(api, file, &error).await),
        };
        let copied = copy.map(|copy| format!(" (the old one is {})", copy.display())).unwrap_or_default();
        output::line(&format!("{shown} has the server {}{copied}", self.name))?;
        let gone = server_in(&old, self.client, &self.name).map(|server| taken_away(&server, self.client));
        if let Some(gone) = gone.filter(|gone| !gone.is_empty()) {
            output::line(&format!("removed from the old entry: {}", gone.join(", ")))?;
        }
        output::line(&key.told())?;
        let tools = check(api, &key).await?;
        output::line(&told_tools(&tools))?;
        if self.client != ConnectedClient::Inspector {
            output::note("A client that runs reads its file when it is started again.");
        }
        self.show_command(file)
    }

    /// Prints the command of the inspector, which is told of its file.
    fn show_command(&self, file: &Path) -> Result<(), Failure> {
        if self.client != ConnectedClient::Inspector {
            return Ok(());
        }
        // a key on a command line could be read by other users
        let file = file.display().to_string().replace('\'', r"'\''");
        output::line(&format!(
            "\nnpx -y @modelcontextprotocol/inspector@2.12.0 --cli --config '{file}' --server {} --method tools/list",
            self.name
        ))
    }

    fn server<'a>(&'a self, url: &'a str, key: &'a str) -> WrittenServer<'a> {
        WrittenServer { client: self.client, name: &self.name, url, key }
    }

    /// Returns the tools that the client has with what its file says; `None` if it says nothing that works here. An agent's
    /// own key is the only one that will do for it.
    async fn working(&self, api: &ApiClient, text: &str, url: &str) -> Result<Option<Vec<String>>, Failure> {
        let Some(server) = server_in(text, self.client, &self.name) else { return Ok(None) };
        let wanted = |(name, value): (&str, Value)| match value {
            Value::String(_) => server.get(name) == Some(&value),
            _ => true,
        };
        let members = self.client.known().members(url, "");
        let headers = members.iter().find(|(_, value)| value.is_object()).map_or("headers", |(name, _)| name);
        let key = server.get(headers).and_then(|headers| headers.get(KEY_HEADER)).and_then(Value::as_str);
        let is_whole = members.into_iter().all(wanted) && taken_away(&server, self.client).is_empty();
        let Some(key) = key.filter(|_| is_whole) else { return Ok(None) };
        let why = match self.fault(api, key).await? {
            Some(why) => why,
            None => match api.with_key(key)?.mcp_tools().await {
                Ok(tools) => return Ok(Some(tools)),
                Err(Failure::Unreachable(sentence)) => return Err(Failure::Unreachable(sentence)),
                Err(failure) => failure.to_string(),
            },
        };
        if self.makes_keys(api).await?
            && let Some(next) = successor::of(api, key).await?
        {
            return Err(Failure::Refused(format!(
                "the key in the file was rotated; {}",
                successor::advice(&next)
            )));
        }
        output::note(&format!("the key in the file is not used: {why}"));
        Ok(None)
    }

    /// Returns why the key of a file is not the one for this client; `None` if it is.
    async fn fault(&self, api: &ApiClient, key: &str) -> Result<Option<String>, Failure> {
        let manages = self.makes_keys(api).await?;
        if Some(key) != api.key() && !manages {
            return Ok(Some("it is not the key of this command".to_owned()));
        }
        let status = async |api: &ApiClient| api.get(&["status"], &ApiQuery::default()).await?.json();
        let of_key = match status(&api.with_key(key)?).await {
            Ok(of_key) => of_key,
            Err(Failure::Unreachable(sentence)) => return Err(Failure::Unreachable(sentence)),
            Err(_) => return Ok(Some("it is unknown, revoked or past its time".to_owned())),
        };
        let (role, tenant) = (text(&of_key, "role"), text(&of_key, "tenant"));
        if !matches!(&*role, "agent" | "operator") {
            return Ok(Some(format!("it is of role {role}, which is not for a client")));
        }
        let wanted = text(&status(api).await?, "tenant");
        if tenant != wanted {
            return Ok(Some(format!("it is of the tenant {tenant}, not {wanted}")));
        }
        if !manages {
            return Ok(None);
        }
        let row = api.get(&["keys", &text(&of_key, "key_id")], &ApiQuery::default()).await?.json()?;
        let end = text(&row, "expires_at");
        let is_near = end.parse::<DateTime<Utc>>().is_ok_and(|end| end - Utc::now() < KEY_LEFT_MIN);
        if is_near {
            return Ok(Some(format!("it ends at {end}")));
        }
        if let Some(next) = successor::of(api, key).await? {
            output::note(&format!(
                "the key in the file was rotated and ends at {end}; {}",
                successor::advice(&next)
            ));
        }
        Ok(None)
    }

    async fn makes_keys(&self, api: &ApiClient) -> Result<bool, Failure> {
        let me = api.get(&["status"], &ApiQuery::default()).await?.json()?;
        Ok(matches!(&*text(&me, "role"), "admin" | "platform"))
    }

    /// Returns the caller's own key, or for a caller who manages keys a new one.
    async fn key(&self, api: &ApiClient) -> Result<ClientKey, Failure> {
        if self.makes_keys(api).await? {
            return self.new_key(api).await;
        }
        let me = api.get(&["status"], &ApiQuery::default()).await?.json()?;
        match (&*text(&me, "role"), api.key()) {
            (role, _) if self.new_key => Err(Failure::NotAuthorised(format!(
                "a key of role {role} makes no keys: leave --new-key out, or use an admin's key"
            ))),
            ("agent" | "operator", Some(key)) => Ok(ClientKey { secret: key.to_owned(), made: None }),
            (role, _) => Err(Failure::NotAuthorised(format!(
                "a key of role {role} has no tools: use an agent's key, or an admin's, which makes one for the client"
            ))),
        }
    }

    async fn new_key(&self, api: &ApiClient) -> Result<ClientKey, Failure> {
        let mut body = json!({
            "role": "agent",
            "name": format!("{}-{}", self.name, self.client.known().name()),
            // an IDE may be told to approve reads by itself
            "settings": {"unannotated_tools": "distrust"},
        });
        if let (Some(owner), Some(body)) = (owner_of_new(api).await?, body.as_object_mut()) {
            body.insert("owner".to_owned(), owner.into());
        }
        let made = api.send(Method::POST, &["keys"], body.to_string()).await?.json()?;
        note_others(api, &made).await?;
        Ok(ClientKey { secret: text(&made, "key"), made: Some(made) })
    }
}

impl ClientKey {
    /// Returns a line that says which key it is.
    fn told(&self) -> String {
        match &self.made {
            None => "key: the one of this command".to_owned(),
            Some(made) => format!(
                "key: new, {} ({}, owner {}, unannotated_tools: distrust); mcpproxy key revoke {} ends it",
                text(made, "name"),
                text(made, "role"),
                text(made, "owner"),
                text(made, "id")
            ),
        }
    }

    /// Revokes a key that was made for a file which cannot be written, and returns the failure.
    async fn unwritten(&self, api: &ApiClient, file: &Path, error: &std::io::Error) -> Failure {
        let mut sentence = format!("{} could not be written: {error}", file.display());
        if let Some(id) = self.made.as_ref().map(|made| text(made, "id")) {
            sentence.push_str(&match api.act(Method::DELETE, &["keys", &id]).await {
                Ok(_) => "; the new key is revoked again".to_owned(),
                Err(_) => format!("; the new key is of no use: mcpproxy key revoke {id}"),
            });
        }
        Failure::Unwritten(sentence)
    }
}

/// Prints a note if other keys that work have the name of a new one: of earlier runs, whose configuration may not be used.
async fn note_others(api: &ApiClient, made: &Value) -> Result<(), Failure> {
    let keys = api.list(&["keys"], &ApiQuery::default(), usize::MAX).await?;
    let is_other = |key: &Value| {
        text(key, "name") == text(made, "name") && text(key, "id") != text(made, "id") && key::works(key)
    };
    let others = keys.iter().filter(|key| is_other(&output::parsed(key))).count();
    if others > 0 {
        output::note(&format!(
            "Other keys that work have the name {}: {others}. mcpproxy key list shows them, mcpproxy key revoke ID ends one.",
            text(made, "name")
        ));
    }
    Ok(())
}

/// Returns the owner of a new key: the login, or else whoever owns the key that makes it. Nobody is named as the owner of the
/// platform's.
async fn owner_of_new(api: &ApiClient) -> Result<Option<String>, Failure> {
    if let Some(login) = ["USER", "LOGNAME"].into_iter().find_map(input::variable) {
        return Ok(Some(login));
    }
    let id = text(&api.get(&["status"], &ApiQuery::default()).await?.json()?, "key_id");
    if id.is_empty() {
        return Ok(None);
    }
    let own = api.get(&["keys", &id], &ApiQuery::default()).await?.json()?;
    Ok(Some(text(&own, "owner")).filter(|_| own.get("owner_given") == Some(&Value::Bool(true))))
}

/// Returns a client with a key that was given for the MCP client.
///
/// # Errors
/// The key is of another role, or does not work.
async fn with_key_of_client(api: &ApiClient, key: &str) -> Result<ApiClient, Failure> {
    let api = api.with_key(key)?;
    let status = match api.get(&["status"], &ApiQuery::default()).await {
        Err(Failure::NotAuthorised(_)) => {
            return Err(Failure::NotAuthorised(
                "the key for the client (--key, MCPPROXY_CLIENT_KEY) is unknown, revoked or past its time; without one, an \
                 admin's key makes a new one"
                    .to_owned(),
            ));
        }
        status => status?.json()?,
    };
    let role = text(&status, "role");
    match &*role {
        "agent" | "operator" => Ok(api),
        role => Err(Failure::Usage(format!(
            "the key for the client (--key, MCPPROXY_CLIENT_KEY) is of role {role}: give one of role agent or operator"
        ))),
    }
}

/// Lists the tools over MCP with the key. A replica that does not know a new key yet is asked again.
async fn check(api: &ApiClient, key: &ClientKey) -> Result<Vec<String>, Failure> {
    let (started, client) = (Instant::now(), api.with_key(&key.secret)?);
    loop {
        match client.mcp_tools().await {
            Err(Failure::NotAuthorised(_)) if key.made.is_some() && started.elapsed() < KNOWN_WAIT_MAX => {
                tokio::time::sleep(KNOWN_PAUSE).await;
            }
            listed => return listed,
        }
    }
}

fn told_tools(tools: &[String]) -> String {
    format!("checked: tools/list answers with {} ({})", tools.len(), tools.join(", "))
}
