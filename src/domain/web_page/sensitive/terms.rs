//! Terms of sensitive categories, in English, German, French, Spanish and Italian, folded.
//!
//! `=` before a term: the whole text. `*` behind a term: any end of its last word. Other terms are whole words in a row.

use super::SensitiveCategory;

/// Place of a form in which a term counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// Name, label and other texts of a field that a person fills in.
    Field,
    /// Texts of a box to tick.
    Box,
    /// Texts that say what the form does: buttons, headings, name, function and description of the tool.
    Deed,
    /// Texts of links and of paragraphs within the form.
    Text,
    /// Text of a button of a form that posts.
    Post,
}

use SensitiveCategory::{Credentials, Irreversible, Legal, Payment, Personal, Transaction};

/// All terms, as lists with commas.
pub(super) const TERMS: [(SensitiveCategory, Spot, &str); 31] = [
    (
        Payment,
        Spot::Field,
        "card number,cardnumber,card no,credit card,creditcard,debit card,cc number,ccnumber,ccnum,cc num,cvv,cvv2,cvc,cvc2,\
         card code,card holder,cardholder,name on card,card expiry,card expiration,iban,bic,swift,sort code,routing number,\
         account number,bank account,bank details,payment method,payment details,payment card,paypal,crypto wallet",
    ),
    (
        Payment,
        Spot::Field,
        "kreditkarte*,kartennummer,karteninhaber*,kontonummer,kontoinhaber*,bankleitzahl,blz,prufziffer,kartenprufnummer,\
         lastschrift*,zahlungsart,zahlungsmethode,zahlungsmittel,bankverbindung,geldkarte",
    ),
    (
        Payment,
        Spot::Field,
        "carte bancaire,carte de credit,carte bleue,numero de carte,numero de la carte,cryptogramme,titulaire de la carte,\
         coordonnees bancaires,numero de compte,rib,mode de paiement,moyen de paiement",
    ),
    (
        Payment,
        Spot::Field,
        "tarjeta de credito,tarjeta de debito,numero de tarjeta,numero de la tarjeta,titular de la tarjeta,cuenta bancaria,\
         numero de cuenta,metodo de pago,forma de pago,medio de pago",
    ),
    (
        Payment,
        Spot::Field,
        "carta di credito,carta di debito,numero di carta,numero della carta,numero carta,titolare della carta,intestatario,\
         conto corrente,conto bancario,metodo di pagamento,modalita di pagamento",
    ),
    (
        Transaction,
        Spot::Deed,
        "buy,purchase,purchasing,checkout,check out,place order,place your order,place my order,order now,submit order,\
         confirm order,complete order,pay,payment,payments,subscription,start trial,free trial,upgrade plan,upgrade now,donate,\
         donation,send money,transfer money,transfer funds,money transfer,wire transfer,place bid,invest,book now,book and pay,\
         confirm booking,complete booking,renew,top up,deposit,withdraw",
    ),
    (
        Transaction,
        Spot::Deed,
        "kaufen,kauf,bestellen,bestellung aufgeben,bestellung abschicken,bestellung absenden,kostenpflichtig*,zahlungspflichtig*,\
         bezahlen,zahlung,zahlen,zur kasse,kasse,spenden,uberweisen,uberweisung,jetzt buchen,verbindlich*,aufladen,einzahlen",
    ),
    (
        Transaction,
        Spot::Deed,
        "acheter,achat,commander,payer,paiement,passer la commande,passer commande,valider la commande,finaliser la commande,\
         confirmer la commande,faire un don,virement,virer,reserver maintenant,souscrire,abonnement",
    ),
    (
        Transaction,
        Spot::Deed,
        "comprar,compra,pagar,pago,realizar pedido,hacer pedido,confirmar pedido,finalizar pedido,tramitar pedido,donar,\
         transferir,transferencia,reservar ahora,contratar,suscripcion de pago,recargar",
    ),
    (
        Transaction,
        Spot::Deed,
        "compra ora,compra subito,acquista,acquisto,acquistare,ordina ora,invia ordine,conferma ordine,concludi ordine,paga,\
         pagare,pagamento,dona,donazione,bonifico,trasferisci,prenota ora,sottoscrivi,ricarica",
    ),
    (
        Credentials,
        Spot::Field,
        "password,passwd,passcode,passphrase,pwd,pin,pin code,otp,totp,one time code,one time password,verification code,\
         security code,confirmation code,2fa,two factor,mfa,authenticator,recovery code,backup code,api key,apikey,secret,\
         secret key,client secret,access token,auth token,private key,seed phrase,security question,security answer,\
         maiden name,ssh key",
    ),
    (
        Credentials,
        Spot::Field,
        "passwort,kennwort,losungswort,geheimzahl,einmalcode,einmalpasswort,bestatigungscode,sicherheitscode,zugangscode,\
         freischaltcode,tan,sicherheitsfrage,geheimfrage,api schlussel",
    ),
    (
        Credentials,
        Spot::Field,
        "mot de passe,code de verification,code de securite,code de confirmation,code secret,code pin,code a usage unique,cle api,\
         question secrete,question de securite",
    ),
    (
        Credentials,
        Spot::Field,
        "contrasena,clave,clave de acceso,codigo de verificacion,codigo de seguridad,codigo de confirmacion,\
         pregunta de seguridad,pregunta secreta,codigo de un solo uso",
    ),
    (
        Credentials,
        Spot::Field,
        "parola d ordine,parola chiave segreta,codice di verifica,codice di sicurezza,codice di conferma,codice otp,codice pin,\
         chiave api,domanda di sicurezza,domanda segreta,codice monouso",
    ),
    (
        Credentials,
        Spot::Deed,
        "log in,login,sign in,signin,reset password,change password,einloggen,passwort andern,passwort zurucksetzen,se connecter,\
         connexion,iniciar sesion,accedi,effettua l accesso",
    ),
    (
        Personal,
        Spot::Field,
        "=name,first name,last name,full name,your name,surname,given name,family name,forename,firstname,lastname,fullname,\
         email,e mail,mail address,phone,telephone,mobile number,cell phone,address,address line,street,date of birth,birth date,\
         birthdate,birthday,dob,passport,passport number,national id,social security,ssn,id number,identity card,\
         driving licence,driving license,driver s license,drivers license,tax id,tax number,nationality,gender,marital status,\
         religion,ethnicity,health,medical,diagnosis,symptoms,medication,allergies,insurance number,salary,income,\
         emergency contact",
    ),
    (
        Personal,
        Spot::Field,
        "vorname,nachname,familienname,ihr name,dein name,telefon*,handynummer,handy,mobilnummer,rufnummer,anschrift,adresse,\
         lieferadresse,rechnungsadresse,strasse,hausnummer,geburtsdatum,geburtstag,geburtsort,ausweisnummer,\
         personalausweis*,reisepass*,sozialversicherung*,steuernummer,steuer id,krankenkasse,krankenversicherung*,\
         versichertennummer,staatsangehorigkeit,geschlecht,familienstand,diagnose,symptome,beschwerden,medikamente,gehalt,\
         einkommen",
    ),
    (
        Personal,
        Spot::Field,
        "=nom,prenom,nom de famille,votre nom,nom complet,adresse,rue,telephone,portable,courriel,adresse mail,date de naissance,\
         lieu de naissance,numero de securite sociale,securite sociale,passeport,carte d identite,nationalite,sexe,\
         situation familiale,mutuelle,symptomes,diagnostic,salaire,revenu,revenus",
    ),
    (
        Personal,
        Spot::Field,
        "=nombre,nombre completo,tu nombre,su nombre,nombre y apellidos,apellido,apellidos,direccion,domicilio,calle,telefono,\
         movil,correo,correo electronico,fecha de nacimiento,lugar de nacimiento,dni,nie,pasaporte,seguridad social,\
         nacionalidad,sexo,estado civil,diagnostico,sintomas,salario,ingresos",
    ),
    (
        Personal,
        Spot::Field,
        "=nome,nome e cognome,nome completo,cognome,indirizzo,telefono,cellulare,posta elettronica,data di nascita,\
         luogo di nascita,codice fiscale,passaporto,carta d identita,nazionalita,cittadinanza,sesso,stato civile,\
         tessera sanitaria,diagnosi,sintomi,stipendio,reddito",
    ),
    (
        Legal,
        Spot::Box,
        "terms,tos,eula,agree,i agree,accept,i accept,consent,i consent,gdpr,privacy,contract,binding,liability,waiver,signature,\
         agreement,agb,datenschutz*,einwillig*,einverstanden,akzeptiere*,zustimm*,stimme zu,vertrag*,nutzungsbedingungen,\
         geschaftsbedingungen,j accepte,accepte,accepter,conditions generales,cgu,cgv,consentement,consens,consentir,\
         confidentialite,contrat,acepto,aceptar,terminos,condiciones,privacidad,consentimiento,consiento,contrato,accetto,\
         accettare,termini,condizioni,informativa,consenso,acconsento,contratto",
    ),
    (
        Legal,
        Spot::Deed,
        "i agree,agree and continue,agree and,accept and,accept terms,sign contract,sign agreement,sign document,e sign,\
         zustimmen,akzeptieren,unterschreiben,unterzeichnen,signer,j accepte,accepter et continuer,aceptar y continuar,firmar,\
         accetta e continua,firma il contratto",
    ),
    (
        Legal,
        Spot::Text,
        "you agree,you accept,you consent,terms of service,terms of use,terms and conditions,terms conditions,privacy policy,\
         legally binding,sie akzeptieren,akzeptieren sie,stimmen sie,erklaren sie,sie stimmen,datenschutzerklarung,\
         nutzungsbedingungen,geschaftsbedingungen,agb",
    ),
    (
        Legal,
        Spot::Text,
        "vous acceptez,conditions generales,conditions d utilisation,politique de confidentialite,aceptas,acepta los,acepta las,\
         acepta nuestros,terminos y condiciones,condiciones generales,politica de privacidad,accetti,si accettano,\
         termini e condizioni,condizioni generali,informativa sulla privacy",
    ),
    (
        Irreversible,
        Spot::Deed,
        "delete,deletes,deletion,remove account,close account,close my account,deactivate,cancel subscription,cancel membership,\
         cancel my,cancel order,cancel booking,unsubscribe,terminate,erase,wipe,permanently,irreversible,send message,\
         send email,post comment,publish,place order,place your order,submit application,revoke",
    ),
    (
        Irreversible,
        Spot::Deed,
        "loschen,konto schliessen,konto auflosen,kundigen,kundigung,abbestellen,stornieren,widerrufen,endgultig,unwiderruflich,\
         nachricht senden,nachricht absenden,veroffentlichen,bestellung aufgeben",
    ),
    (
        Irreversible,
        Spot::Deed,
        "supprimer,suppression,fermer le compte,fermer mon compte,resilier,resiliation,annuler la commande,\
         annuler l abonnement,se desabonner,se desinscrire,desinscription,envoyer le message,publier,definitivement",
    ),
    (
        Irreversible,
        Spot::Deed,
        "eliminar,borrar,cerrar cuenta,cerrar mi cuenta,cancelar suscripcion,cancelar pedido,cancelar reserva,darse de baja,\
         dar de baja,enviar mensaje,publicar,definitivamente",
    ),
    (
        Irreversible,
        Spot::Deed,
        "elimina,eliminare,cancella account,cancella ordine,chiudi account,chiudi il conto,disiscriviti,disdici,disdetta,\
         annulla ordine,annulla abbonamento,invia messaggio,pubblica,definitivamente,inoltra richiesta",
    ),
    (
        Irreversible,
        Spot::Post,
        "send,send it,=submit message,post,senden,absenden,abschicken,envoyer,enviar,invia,inviare,spedisci",
    ),
];
