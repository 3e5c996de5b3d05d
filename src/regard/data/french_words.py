"""The words of the French–English corpus: their French forms, by gender and number, and their English ones."""

from __future__ import annotations

from dataclasses import dataclass

VOWELS = "aeiouyhéèêàâîïôûœAEIOUYHÉÈÊÀÂÎÏÔÛŒ"  # no word here has an h that is pronounced


@dataclass(frozen=True)
class Noun:
    """A noun, or a name, with its plural forms; those of a name are empty."""

    french: str
    plural: str
    english: str
    english_plural: str
    feminine: bool

    def form(self, plural: bool) -> str:
        return self.plural if plural else self.french

    def in_english(self, plural: bool) -> str:
        return self.english_plural if plural else self.english


@dataclass(frozen=True)
class Adjective:
    """An adjective or a participle: its four French forms, and the one English form."""

    forms: tuple[str, str, str, str]  # masculine, feminine, and both in the plural
    english: str
    before_vowel: str = ""  # of the masculine singular, if it is another form: nouvel

    def agreeing(self, feminine: bool, plural: bool) -> str:
        return self.forms[2 * plural + feminine]


@dataclass(frozen=True)
class Verb:
    """A verb: the infinitive, the present and the participle, and the English base, present, past and participle."""

    infinitive: str
    present: tuple[str, str]  # third person, singular and plural
    participle: Adjective  # its English is the participle
    base: str
    past: str

    @property
    def third(self) -> str:
        """The third person of the English present."""
        if self.base.endswith(("s", "sh", "ch", "x")):
            return self.base + "es"
        if self.base.endswith("y") and self.base[-2] not in "aeiou":
            return self.base[:-1] + "ies"
        return self.base + "s"


def plural_of(french: str) -> str:
    """The regular plural of a French noun or adjective."""
    if french.endswith(("s", "x", "z")):
        return french
    return french[:-1] + "ux" if french.endswith("al") else french + ("x" if french.endswith("eau") else "s")


def english_plural_of(english: str) -> str:
    """The regular plural of an English noun."""
    if english.endswith("y") and english[-2] not in "aeiou":
        return english[:-1] + "ies"
    return english + ("es" if english.endswith(("s", "x", "ch", "sh")) else "s")


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Words with their translations, from "mars March, …"."""
    found = (pair.split() for pair in text.split(","))
    return tuple((french, english) for french, english in found)


def _nouns(feminine: bool, text: str) -> tuple[Noun, ...]:
    """Nouns from "accord agreement, …"."""
    return tuple(Noun(fr, plural_of(fr), en, english_plural_of(en), feminine) for fr, en in _pairs(text))


def _names(feminine: bool, text: str) -> tuple[Noun, ...]:
    """Names from "Rome, Londres London": the English one may be the same."""
    found = (pair.split() for pair in text.split(","))
    return tuple(Noun(words[0], "", words[-1], "", feminine) for words in found)


def _adjective(french: str, english: str) -> Adjective:
    """An adjective with its forms: "blanc/blanche", or one whose feminine is regular."""
    masculine, _, feminine = french.partition("/")
    if not feminine:
        ends = {"e": "", "ien": "ne", "if": "", "eux": ""}
        found = next((end for end in ends if masculine.endswith(end)), None)
        if found == "if":
            feminine = masculine[:-1] + "ve"
        elif found == "eux":
            feminine = masculine[:-1] + "se"
        else:
            feminine = masculine + (ends[found] if found else "e")
    return Adjective((masculine, feminine, plural_of(masculine), plural_of(feminine)), english)


def _adjectives(text: str) -> tuple[Adjective, ...]:
    return tuple(_adjective(french, english) for french, english in _pairs(text))


def _verb(text: str) -> Verb:
    """A verb from "signer sign signed" (regular) or "lire lit lisent lu read read read"."""
    words = text.split()
    if len(words) == 3:
        stem, (infinitive, base, past) = words[0][:-2], words
        present, participle, done = (f"{stem}e", f"{stem}ent"), f"{stem}é", past
    else:
        infinitive, one, many, participle, base, past, done = words
        present = (one, many)
    return Verb(infinitive, present, _adjective(participle, done), base, past)


def _verbs(text: str) -> tuple[Verb, ...]:
    return tuple(_verb(one) for one in text.split(","))


DOCUMENTS = _nouns(
    False,
    "accord agreement, traité treaty, contrat contract, rapport report, projet project, texte text, budget budget,"
    "plan plan, programme programme, document document, message message, article article",
) + _nouns(
    True,
    "loi law, convention convention, décision decision, lettre letter, proposition proposal, réforme reform,"
    "déclaration statement, règle rule, résolution resolution, liste list, offre offer, étude study",
)
INSTITUTIONS = _nouns(
    False,
    "conseil council, parlement parliament, marché market, comité committee, institut institute, tribunal tribunal,"
    "centre centre, réseau network, gouvernement government, syndicat syndicate",
) + _nouns(
    True,
    "zone area, union union, banque bank, commission commission, communauté community, assemblée assembly, cour court,"
    "agence agency, organisation organisation, association association, alliance alliance, université university,"
    "fédération federation, conférence conference",
)
PEOPLE = _nouns(
    False,
    "président president, ministre minister, directeur director, juge judge, professeur professor, roi king,"
    "ambassadeur ambassador, maire mayor, avocat lawyer, médecin doctor, écrivain writer, voisin neighbour",
) + _nouns(
    True,
    "reine queen, présidente president, directrice director, avocate lawyer, journaliste journalist, étudiante student,"
    "voisine neighbour, ministre minister, experte expert",
)
THINGS = _nouns(
    False,
    "livre book, jardin garden, pont bridge, musée museum, port port, village village, bateau boat, vin wine,"
    "hôtel hotel, arbre tree",
) + _nouns(
    True,
    "maison house, ville city, école school, rue street, montagne mountain, voiture car, table table, route road,"
    "église church, île island, gare station, place square",
)
# What an agreement may be about; French has an article, English has none.
TOPICS = (
    *_names(False, "commerce trade, climat climate, travail work, pétrole oil, sport sport, tourisme tourism"),
    *_names(True, "paix peace, santé health, énergie energy, agriculture agriculture, pêche fishing"),
    *_names(True, "sécurité security"),
)
COUNTRIES = _names(
    True,
    "France, Italie Italy, Espagne Spain, Allemagne Germany, Suisse Switzerland, Belgique Belgium, Grèce Greece,"
    "Pologne Poland, Norvège Norway, Irlande Ireland, Inde India, Chine China",
) + _names(False, "Portugal, Canada, Brésil Brazil, Mexique Mexico, Japon Japan, Maroc Morocco, Danemark Denmark")
CITIES = _names(
    False,
    "Paris, Rome, Berlin, Madrid, Lisbonne Lisbon, Londres London, Genève Geneva, Bruxelles Brussels, Vienne Vienna,"
    "Varsovie Warsaw, Athènes Athens, Oslo, Dublin, Prague, Venise Venice, Milan, Tokyo, Copenhague Copenhagen",
)
MEN = _names(False, "Paul, Jean, Pierre, Thomas, Nicolas, Antoine, Lucas, Hugo")
WOMEN = _names(True, "Marie, Anna, Louise, Claire, Sophie, Julie, Emma, Alice")

# After the noun, in the order of their distance from it: a kind, and then a region.
KINDS = _adjectives(
    "économique economic, monétaire monetary, politique political, commercial commercial, social social,"
    "culturel/culturelle cultural, scientifique scientific, agricole agricultural, technique technical,"
    "central central, national national, international international, public/publique public, militaire military,"
    "fédéral federal, financier/financière financial, industriel/industrielle industrial, général general"
)
REGIONS = _adjectives(
    "européen/européenne European, africain/africaine African, asiatique Asian, américain/américaine American,"
    "français/française French, italien Italian, allemand/allemande German, espagnol/espagnole Spanish,"
    "portugais/portugaise Portuguese, suisse Swiss, belge Belgian, canadien Canadian, mexicain/mexicaine Mexican,"
    "japonais/japonaise Japanese, indien Indian, polonais/polonaise Polish, norvégien Norwegian,"
    "irlandais/irlandaise Irish"
)
QUALITIES = _adjectives(
    "important/importante important, difficile difficult, secret/secrète secret, clair/claire clear,"
    "complet/complète complete, utile useful, simple simple, célèbre famous, moderne modern, calme calm, rapide quick,"
    "dangereux dangerous, étrange strange, solide solid, précieux precious, parfait/parfaite perfect"
)
COLOURS = _adjectives(
    "rouge red, vert/verte green, bleu/bleue blue, blanc/blanche white, noir/noire black, gris/grise grey"
)
MOODS = _adjectives(
    "content/contente happy, triste sad, jeune young, malade ill, prudent/prudente careful, patient/patiente patient,"
    "célèbre famous, calme calm, riche rich, absent/absente absent"
)
# Before the noun.
FRONT = (
    Adjective(("nouveau", "nouvelle", "nouveaux", "nouvelles"), "new", "nouvel"),
    Adjective(("vieux", "vieille", "vieux", "vieilles"), "old", "vieil"),
    *_adjectives(
        "petit/petite small, grand/grande large, ancien former, premier/première first, dernier/dernière last"
    ),
)
ON_DOCUMENTS = _verbs(
    "signer sign signed, ratifier ratify ratified, publier publish published, adopter adopt adopted,"
    "rejeter rejette rejettent rejeté reject rejected rejected, préparer prepare prepared, présenter present presented,"
    "approuver approve approved, annuler cancel cancelled, examiner examine examined, discuter discuss discussed,"
    "défendre défend défendent défendu defend defended defended, lire lit lisent lu read read read,"
    "écrire écrit écrivent écrit write wrote written, terminer finish finished, corriger correct corrected,"
    "refuser refuse refused, traduire traduit traduisent traduit translate translated translated,"
    "oublier oublie oublient oublié forget forgot forgotten"
)
ON_THINGS = _verbs(
    "visiter visit visited, admirer admire admired, dessiner dessine dessinent dessiné draw drew drawn,"
    "vendre vend vendent vendu sell sold sold, acheter achète achètent acheté buy bought bought,"
    "fermer close closed, construire construit construisent construit build built built,"
    "peindre peint peignent peint paint painted painted, trouver find found, chercher seek sought,"
    "perdre perd perdent perdu lose lost lost, voir voit voient vu see saw seen"
)
ON_PEOPLE = _verbs(
    "inviter invite invited, saluer greet greeted, aider help helped, nommer name named, attendre attend attendent"
    " attendu await awaited awaited, remercier thank thanked"
)
# With "être" in French.
MOTION = _verbs("arriver arrive arrived, rester stay stayed, venir vient viennent venu come came come")
MONTHS = _pairs(
    "janvier January, février February, mars March, avril April, mai May, juin June, juillet July, août August,"
    "septembre September, octobre October, novembre November, décembre December"
)
WEEKDAYS = _pairs(
    "lundi Monday, mardi Tuesday, mercredi Wednesday, jeudi Thursday, vendredi Friday, samedi Saturday, dimanche Sunday"
)
SEASONS = (
    *(("au", "printemps", "spring"), ("en", "été", "summer")),
    *(("en", "automne", "autumn"), ("en", "hiver", "winter")),
)
NUMBERS = _pairs("deux two, trois three, quatre four, cinq five, dix ten")
