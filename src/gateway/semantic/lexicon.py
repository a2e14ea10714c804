"""Words that ask for the same thing: closed lists, each row with the reason why it is safe.

A row is a possible wrong answer: it is here only if putting one member for another leaves a question with the same
answer, or one that nobody asks. Words that are near are not: one erases a disk and removes a disk, picks a lock and
chooses a lock; garbage collection is not the rubbish, nor an application an app.
"""

from typing import Final, NamedTuple

from gateway.semantic.patterns import word_set


class Synonyms(NamedTuple):
    """Members of a row, base forms, the first of which stands for all; and why they are interchangeable."""

    members: str
    why: str


SYNONYMS: Final = (
    Synonyms("delete remove", "one act on data, accounts and users"),
    Synonyms("buy purchase", "purchase is the formal word"),
    Synonyms("fix repair mend", "one act on what is broken"),
    Synonyms("begin start commence", "one moment of anything that lasts"),
    Synonyms("end finish", "one moment of anything that lasts"),
    Synonyms("car automobile", "automobile is the formal word"),
    Synonyms("doctor physician", "physician is the formal word"),
    Synonyms("big large", "one size"),
    Synonyms("photo photograph picture", "one thing to take, show or send"),
    Synonyms("reduce decrease lower", "one direction"),
    Synonyms("show display", "what a screen does"),
    Synonyms("help assist", "assist is the formal word"),
    Synonyms("get obtain", "obtain is the formal word"),
    Synonyms("refund reimbursement", "money back"),
    Synonyms("allow permit", "permit is the formal word"),
    Synonyms("ban prohibit forbid", "what must not be"),
    Synonyms("send ship dispatch", "what a sender does"),
    Synonyms("parcel package", "British and American"),
    Synonyms("film movie", "British and American"),
    Synonyms("phone telephone", "short form"),
    Synonyms("sick ill", "American and British"),
    Synonyms("job occupation", "occupation is the formal word"),
    Synonyms("child kid", "kid is the informal word"),
    Synonyms("choose select", "one act on several things"),
    Synonyms("enable turn_on switch_on", "one state of a feature"),
    Synonyms("turn_off switch_off", "one act on a device or a feature"),
    Synonyms("flat apartment", "British and American"),
    Synonyms("lift elevator", "British and American"),
    Synonyms("bill invoice", "what is to be paid"),
    Synonyms("need require", "require is the formal word"),
    Synonyms("author writer", "who wrote a book"),
    Synonyms("located situated", "where a thing is"),
    Synonyms("glad happy", "one mood"),
    Synonyms("brave courageous", "one quality"),
    Synonyms("rich wealthy", "one state"),
    Synonyms("shareholder stockholder", "British and American"),
    Synonyms("petrol gasoline", "British and American"),
    Synonyms("rubbish trash", "British and American"),
    Synonyms("baggage luggage", "American and British"),
    Synonyms("register sign_up", "one act on a service"),
    Synonyms("enrol enroll", "British and American"),
    Synonyms("maximum max", "short form"),
    Synonyms("minimum min", "short form"),
    Synonyms("speak talk", "one act; a language is spoken"),
    Synonyms("someone somebody", "two forms of one word"),
    Synonyms("anyone anybody", "two forms of one word"),
    Synonyms("math mathematics maths", "short forms"),
    Synonyms("university uni", "short form"),
    Synonyms("television tv telly", "short forms"),
    Synonyms("lawyer attorney", "British and American"),
    Synonyms("shop store", "British and American"),
    Synonyms("quote quotation", "short form"),
    Synonyms("disadvantage downside drawback", "what speaks against a thing"),
    Synonyms("atm cashpoint", "American and British"),
    Synonyms("mother mum mom", "informal words for one person"),
    Synonyms("father dad", "informal word for one person"),
)

WORKS: Final = word_set(
    "album author band cast compose composer direct director film lyric movie novel play plot release sequel series"
    " sing singer song soundtrack star write writer"
)
"""Base forms of words that are said of films, songs and books. What is one is called by any word in any case, so in a
question with one of these no other word is exchanged for a synonym: Brave is not Courageous."""

TERMS: Final = word_set(
    "python javascript typescript java kotlin rust golang php ruby rails perl sql excel git linux unix bash shell vim"
    " c++ c# emacs regex html css docker command method function operator keyword statement library module class group"
)
"""Words that are said where another word may name something: Python's reduce is not its lower. So in a question with
one of these no word is exchanged for a synonym, and signs within it count."""

SPELLINGS: Final = {
    "aeroplane": "airplane",
    "ageing": "aging",
    "aluminium": "aluminum",
    "anaemia": "anemia",
    "catalogue": "catalog",
    "centre": "center",
    "cheque": "check",
    "defence": "defense",
    "diarrhoea": "diarrhea",
    "donut": "doughnut",
    "e-mail": "email",
    "fibre": "fiber",
    "founded": "established",
    "grey": "gray",
    "instalment": "installment",
    "jewellery": "jewelry",
    "judgement": "judgment",
    "leukaemia": "leukemia",
    "licence": "license",
    "log-in": "log_in",
    "login": "log_in",
    "manoeuvre": "maneuver",
    "moustache": "mustache",
    "offence": "offense",
    "ok": "okay",
    "paediatric": "pediatric",
    "programme": "program",
    "pyjamas": "pajamas",
    "set-up": "set_up",
    "setup": "set_up",
    "sign-in": "log_in",
    "signin": "log_in",
    "signup": "sign_up",
    "sign-up": "sign_up",
    "sceptical": "skeptical",
    "sulphur": "sulfur",
    "theatre": "theater",
    "traveller": "traveler",
    "tyre": "tire",
    "u.k": "uk",
    "u.s": "usa",
    "u.s.a": "usa",
    "us^": "usa",
    "wi-fi": "wifi",
    "yoghurt": "yogurt",
}
"""Two spellings or names of one thing that `inflection` does not make one; of the base too. The second goes through
inflection as if it had been written."""

MISSPELLINGS: Final = {
    "accomodation": "accommodation",
    "acess": "access",
    "acount": "account",
    "accout": "account",
    "adress": "address",
    "allowence": "allowance",
    "appartment": "apartment",
    "begining": "beginning",
    "beleive": "believe",
    "buisness": "business",
    "calender": "calendar",
    "cancle": "cancel",
    "chnage": "change",
    "definately": "definitely",
    "diffrence": "difference",
    "diffrent": "different",
    "enviroment": "environment",
    "goverment": "government",
    "knowlege": "knowledge",
    "libary": "library",
    "neccessary": "necessary",
    "occured": "occurred",
    "passwrod": "password",
    "paymnet": "payment",
    "recieve": "receive",
    "recipt": "receipt",
    "reccomend": "recommend",
    "recomend": "recommend",
    "refrigirator": "refrigerator",
    "restaraunt": "restaurant",
    "seperate": "separate",
    "succesful": "successful",
    "temperture": "temperature",
    "tommorow": "tomorrow",
    "tommorrow": "tomorrow",
    "untill": "until",
    "vaccum": "vacuum",
    "wich": "which",
    "teh": "the",
    "hte": "the",
    "waht": "what",
    "hwo": "how",
    "adn": "and",
    "taht": "that",
}
"""Common slips, none of which is a word of its own."""

CONTRACTIONS: Final = {
    "can't": "can not",
    "cannot": "can not",
    "cant": "can not",
    "won't": "will not",
    "wont": "will not",
    "shan't": "shall not",
    "dont": "do not",
    "doesnt": "does not",
    "didnt": "did not",
    "isnt": "is not",
    "arent": "are not",
    "wasnt": "was not",
    "shouldnt": "should not",
    "what's": "what is",
    "whats": "what is",
    "who's": "who is",
    "whos": "who is",
    "where's": "where is",
    "wheres": "where is",
    "when's": "when is",
    "how's": "how is",
    "why's": "why is",
    "couldnt": "could not",
    "hadnt": "had not",
    "hasnt": "has not",
    "havent": "have not",
    "werent": "were not",
    "wouldnt": "would not",
    "that's": "that is",
    "there's": "there is",
    "it's": "it is",
    "let's": "let us",
    "i'm": "i am",
    "im": "i am",
    "ive": "i have",
}

UNTOLD_CONTRACTIONS: Final = word_set("how'd what'd when'd where'd who'd why'd")
"""Of did, had or would: which, only the verb may tell."""

CONTRACTED_ENDINGS: Final = {
    "n't": "not",
    "'re": "are",
    "'ve": "have",
    "'ll": "will",
    "'d": "would",
    "'s": "'s",
}

PHRASAL_VERBS: Final = (
    ("turn turned turning", "on", "turn_on"),
    ("turn turned turning", "off", "turn_off"),
    ("switch switched switching", "on", "switch_on"),
    ("switch switched switching", "off", "switch_off"),
    ("log logged logging", "in", "log_in"),
    ("sign signed signing", "in", "log_in"),
    ("log logged logging", "out", "log_out"),
    ("sign signed signing", "out", "log_out"),
    ("sign signed signing", "up", "sign_up"),
    ("set set setting", "up", "set_up"),
)
"""Base, past and -ing; the particle; one word for both. The third person is the base and s."""

SET_PHRASES: Final = (
    ("get in touch with", "contact"),
    ("has|is got", "has_got"),
    ("have got", "have_got"),
    ("because of", "due to"),
    ("owing to", "due to"),
    ("by using", "using"),
    ("per cent", "percent"),
    ("amongst", "among"),
    ("whilst", "while"),
    ("cell phone", "mobile phone"),
    ("cell phones", "mobile phones"),
    ("a few", "some_few"),
    ("a little", "some_little"),
    ("log|sign into", "log_in to"),
    ("come|comes with", "include"),
    ("close to", "near"),
    ("need|needs to have", "need"),
    ("have|has to have", "need"),
    ("in order to", "to"),
    ("prior to", "before"),
    ("till", "until"),
    ("so as to", "to"),
    ("two factor|step authentication", "2fa"),
    ("rather than", "instead of"),
    ("united kingdom", "uk"),
    ("united states", "usa"),
    ("united states of america", "usa"),
    ("will happen if", "happen if"),
    ("in the year", "in"),
    ("there any", "there"),
    ("have any", "have"),
)

UNITS: Final = (
    "kg kilo kilos kilogram kilograms kilogramme kilogrammes",
    "g gram grams gramme grammes",
    "mg milligram milligrams",
    "km kilometre kilometres kilometer kilometers",
    "m metre metres meter meters",
    "cm centimetre centimetres centimeter centimeters",
    "mm millimetre millimetres millimeter millimeters",
    "l litre litres liter liters",
    "ml millilitre millilitres milliliter milliliters",
    "h hr hrs hour hours",
    "min mins minute minutes",
    "s sec secs second seconds",
    "day days",
    "wk week weeks",
    "month months",
    "yr yrs year years",
    "mb",
    "gb",
    "tb",
    "megabyte megabytes",
    "gigabyte gigabytes",
    "terabyte terabytes",
    "lb lbs",
    "w watt watts",
    "% percent pct",
    "€ euro euros eur",
    "$ dollar dollars",
    "£ gbp quid",
    "degree degrees °",
    "am a.m am^",
    "pm p.m",
    "mile miles",
)
"""Names of one unit, behind a number: `5 m` is five metres, and `m` alone is a letter."""

_CARDINALS: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen twenty"
)
_ORDINALS: Final = "first second third fourth fifth sixth seventh eighth ninth tenth"

NUMBERS: Final = (
    {word: str(value) for value, word in enumerate(_CARDINALS.split())}
    | {word: f"{value}th" for value, word in enumerate(_ORDINALS.split(), start=1)}
    | {
        "thirty": "30",
        "forty": "40",
        "fifty": "50",
        "sixty": "60",
        "seventy": "70",
        "eighty": "80",
        "ninety": "90",
        "hundred": "100",
        "thousand": "1000",
        "million": "1000000",
        "billion": "1000000000",
        "dozen": "12",
    }
)

ANY_CASE: Final = word_set(
    "monday tuesday wednesday thursday friday saturday sunday"
    " january february april june july september october november december"
    " api atm bmi ceo cfo cto csv cv dna dvd eu faq fbi fifa gdp gdpr gps gpu cpu hiv hr html http https jpg json mri"
    " nasa nato nba nfl nhs pc pdf phd png rna sms sql tv uk un url usa usb vat vpn wifi wi-fi x-ray xml"
)
"""Names that are often written without a capital, and are no other word then. (Not pin, may, march, who, us, aids.)"""
