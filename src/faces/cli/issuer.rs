//! `mcpproxy issuer`: identity providers whose tokens are accepted, for platform keys.

use clap::{Args, Subcommand};
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::client::ApiQuery;
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Output, text};
use super::{input, show};

/// `mcpproxy issuer`
#[derive(Args)]
pub struct IssuerCommand {
    #[command(subcommand)]
    command: IssuerAct,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum IssuerAct {
    /// Accept tokens of an identity provider
    Add {
        /// Name of the entry: 1 to 32 of a-z, 0-9 and single hyphens
        name: String,
        /// Issuer URL, exactly as tokens name it in `iss`
        issuer: String,
        #[command(flatten)]
        fields: IssuerFields,
        #[command(flatten)]
        output: Output,
    },
    /// List issuers
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Show an issuer, and whether its keys could be fetched
    Show {
        /// Name of the issuer
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Change an issuer
    Update {
        /// Name of the issuer
        name: String,
        #[command(flatten)]
        fields: IssuerFields,
        #[command(flatten)]
        output: Output,
    },
    /// Refuse the tokens of an issuer from now on
    Remove {
        /// Name of the issuer
        name: String,
        /// Remove without asking
        #[arg(long)]
        yes: bool,
    },
    /// Show or replace the tenants that claims of the issuer's tokens lead to
    Tenants {
        /// Name of the issuer
        name: String,
        /// Claim, value and tenant, for example org=acme-inc:acme; may be repeated, and replaces what was there
        #[arg(long = "assign", value_name = "CLAIM=VALUE:TENANT")]
        assign: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args)]
struct IssuerFields {
    /// Audience that tokens may have besides the gateway's URL; may be repeated
    #[arg(long = "audience", value_name = "AUDIENCE")]
    audiences: Vec<String>,
    /// Host whose metadata lists the issuer [default: every host]
    #[arg(long)]
    host: Option<String>,
    /// Accepted signature algorithm: RS256, PS256, ES256, ES384 or EdDSA; may be repeated [default: all]
    #[arg(long = "algorithm", value_name = "ALGORITHM")]
    algorithms: Vec<String>,
    /// Accepted kind of token, by its header's `typ`: at+jwt or jwt; may be repeated [default: both, and tokens without `typ`]
    #[arg(long = "token-type", value_name = "TYPE")]
    token_types: Vec<String>,
    /// Scope that clients are told to ask the issuer for; may be repeated [default: none]
    #[arg(long = "scope", value_name = "SCOPE")]
    advertised_scopes: Vec<String>,
    /// Tenant of all people of the issuer
    #[arg(long)]
    tenant: Option<String>,
    /// Claim that identifies a person [default: sub]
    #[arg(long, value_name = "CLAIM")]
    subject_claim: Option<String>,
    /// Claim that names a person [default: the first of email, preferred_username, name, sub]
    #[arg(long, value_name = "CLAIM")]
    owner_claim: Option<String>,
    /// Claim of assignments that name none
    #[arg(long, value_name = "CLAIM")]
    tenant_claim: Option<String>,
    /// URL of the key set [default: as the issuer's metadata says]
    #[arg(long, value_name = "URL")]
    jwks_uri: Option<String>,
}

impl IssuerFields {
    fn body(self) -> Map<String, Value> {
        let lists = [
            ("audiences", self.audiences),
            ("algorithms", self.algorithms),
            ("token_types", self.token_types),
            ("advertised_scopes", self.advertised_scopes),
        ];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let texts = [
            ("host", self.host),
            ("tenant", self.tenant),
            ("subject_claim", self.subject_claim),
            ("owner_claim", self.owner_claim),
            ("tenant_claim", self.tenant_claim),
            ("jwks_uri", self.jwks_uri),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::from(text?))));
        lists.map(|(name, list)| (name.to_owned(), Value::from(list))).chain(texts).collect()
    }
}

const ISSUER_COLUMNS: [Column; 5] = [
    ("NAME", |issuer| text(issuer, "name")),
    ("ISSUER", |issuer| text(issuer, "issuer")),
    ("TENANT", |issuer| text(issuer, "tenant")),
    ("KEYS FETCHED", |issuer| text(issuer, "keys_fetched_at")),
    ("ERROR", |issuer| text(issuer, "keys_error")),
];

const ASSIGNMENT_COLUMNS: [Column; 3] = [
    ("CLAIM", |item| text(item, "claim")),
    ("VALUE", |item| text(item, "value")),
    ("TENANT", |item| text(item, "tenant")),
];

impl IssuerCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connection.client()?;
        match self.command {
            IssuerAct::Add { name, issuer, fields, output } => {
                let mut body = fields.body();
                body.insert("name".to_owned(), name.into());
                body.insert("issuer".to_owned(), issuer.into());
                let answer = client.send(Method::POST, &["issuers"], Value::Object(body).to_string()).await?;
                output.thing(&answer.text, show::fields)
            }
            IssuerAct::List { output } => {
                let issuers = client.list(&["issuers"], &ApiQuery::default(), usize::MAX).await?;
                output.items(&issuers, &ISSUER_COLUMNS)
            }
            IssuerAct::Show { name, output } => {
                let answer = client.get(&["issuers", &name], &ApiQuery::default()).await?;
                output.thing(&answer.text, show::fields)
            }
            IssuerAct::Update { name, fields, output } => {
                let body = Value::Object(fields.body()).to_string();
                let answer = client.send(Method::PATCH, &["issuers", &name], body).await?;
                output.thing(&answer.text, show::fields)
            }
            IssuerAct::Remove { name, yes } => {
                input::confirm(yes, &format!("refuse all tokens of the issuer {name}"))?;
                client.act(Method::DELETE, &["issuers", &name]).await?;
                output::note(&format!("issuer {name} is removed: its tokens are refused"));
                Ok(())
            }
            IssuerAct::Tenants { name, assign, output } => {
                let answer = if assign.is_empty() {
                    client.get(&["issuers", &name, "tenants"], &ApiQuery::default()).await?
                } else {
                    let items = assign.iter().map(|text| assignment(text)).collect::<Result<Vec<_>, _>>()?;
                    let body = json!({ "items": items }).to_string();
                    client.send(Method::PUT, &["issuers", &name, "tenants"], body).await?
                };
                let ItemsAnswer { items } = serde_json::from_str(&answer.text)
                    .map_err(|_| Failure::Unreachable("the answer is no list".to_owned()))?;
                output.items(&items, &ASSIGNMENT_COLUMNS)
            }
        }
    }
}

/// Answer with a list that has no further pages.
#[derive(Deserialize)]
struct ItemsAnswer {
    items: Vec<Box<RawValue>>,
}

/// Reads `CLAIM=VALUE:TENANT`. A claim may have colons, a tenant has none.
fn assignment(text: &str) -> Result<Value, Failure> {
    let parts = text.split_once('=').and_then(|(claim, rest)| {
        let (value, tenant) = rest.rsplit_once(':')?;
        Some(json!({ "claim": claim, "value": value, "tenant": tenant }))
    });
    parts.ok_or_else(|| Failure::Usage(format!("'{text}' is not CLAIM=VALUE:TENANT")))
}
