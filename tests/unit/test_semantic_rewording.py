"""Rewordings: constructions that ask one thing, and what looks like one of them."""

import unittest

from gateway.semantic.eligible import Ineligible, read_eligible
from gateway.semantic.patterns import word_set
from gateway.semantic.rewording import reworded
from tests.support.questions import QuestionCase

Case = tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, str], ...]]
"""Groups of one question, and pairs that differ."""

MEASURES: Case = (
    (
        ("How long is the Nile?", "What is the length of the Nile?", "What is the Nile's length?"),
        ("How long was the first bridge?", "What was the length of the first bridge?"),
        ("How fast is a cheetah?", "What is the speed of a cheetah?"),
        ("How fast was Concorde?", "What was the speed of Concorde?"),
        ("How old was Caesar?", "What was the age of Caesar?", "What was Caesar's age?"),
        ("How tall was Napoleon?", "What was the height of Napoleon?", "What was Napoleon's height?"),
        ("How heavy was the bell?", "What was the weight of the bell?", "How much did the bell weigh?"),
        ("How deep was the lake?", "What was the depth of the lake?"),
        ("How wide was the river?", "What was the width of the river?"),
        ("How big was the empire?", "What was the size of the empire?"),
        ("How tall is the tower?", "What is the height of the tower?", "What is the tower's height?"),
        ("How old is the tower?", "What is the tower's age?"),
        ("How heavy is the bell?", "What is the bell's weight?", "How much does the bell weigh?"),
        ("How much does an egg weigh in grams?", "What is the weight of an egg in grams?"),
        ("How big is the flat?", "What is the flat's size?"),
        ("How deep is the lake?", "What is the lake's depth?"),
        ("How wide is the river?", "What is the river's width?"),
        ("How many people live in Oslo?", "What is Oslo's population?"),
        ("Where is the bank?", "What is the bank's location?"),
        ("What does GDP mean?", "What is GDP's meaning?"),
        ("How long does the flu last?", "What is the duration of the flu?"),
        ("How long did the war last?", "What was the duration of the war?"),
        ("How long does milk last in a fridge?", "How long does milk in a fridge last?"),
        ("Tell me how long milk lasts in a fridge", "Tell me how long milk in a fridge lasts"),
        ("Where was Mozart born?", "What is the birthplace of Mozart?", "What is Mozart's birthplace?"),
        ("Where was Mozart born?", "What was the place of birth of Mozart?", "What was Mozart's place of birth?"),
        ("When was Mozart born?", "What is the date of birth of Mozart?", "What is Mozart's date of birth?"),
        ("When was Mozart born?", "What was the birth date of Mozart?"),
        ("Where did Mozart die?", "What is the place of death of Mozart?"),
        ("When did Mozart die?", "What was the date of death of Mozart?"),
        ("How often do I water a fern?", "How frequently do I water a fern?"),
        ("How long does rice keep?", "For how long does rice keep?"),
    ),
    (
        ("How long is the Nile?", "What was the length of the Nile?"),
        ("What is the length of the Nile?", "What is the depth of the Nile?"),
        ("What is the length of the films?", "How long is the film?"),
        ("What is the length of the film?", "How long does the film last?"),
        ("What is the king's age?", "What is the king's height?"),
        ("What is the king's age?", "What is the age of kings?"),
        ("What is the king's son's age?", "What is the king's age?"),
        ("What is the height of the king's son?", "What is the height of the son's king?"),
        ("How much does the bell weigh?", "How much did the bell weigh?"),
        ("How much does the bell weigh?", "How much is the bell?"),
        ("How much can a lorry weigh?", "How heavy is a lorry?"),
        ("How much do bells weigh down a tower?", "How heavy is a tower?"),
        ("What is the speed of a cheetah?", "How fast was a cheetah?"),
        ("What is the speed of a cheetah?", "What is the speed of a leopard?"),
        ("How hot is a habanero?", "What is the temperature of a habanero?"),
        ("How high is a plane?", "What is the height of a plane?"),
        ("How long does the flu last?", "How long did the flu last?"),
        ("How long does the flu last?", "How long does the flu take?"),
        ("How long does the last of the wine keep?", "How long does the wine keep last?"),
        ("How long does the last train wait?", "How long does the train wait?"),
        ("How long does milk last in a fridge?", "How long does milk last out of a fridge?"),
        ("How long does milk last with a lid?", "How long does milk last without a lid?"),
        ("Where was Mozart born?", "Where did Mozart die?"),
        ("What is Mozart's birthplace?", "What is Mozart's date of birth?"),
        ("What is the birthplace of Mozart?", "What is the birthplace of Salieri?"),
        ("What is the date of birth of Mozart?", "In what year was Mozart born?"),
        ("What is Mozart's birthday?", "When was Mozart born?"),
        ("What is the birthplace of the king's son?", "Where was the king born?"),
        ("How frequently do I water a fern?", "How frequently should I water a fern?"),
    ),
)

TOLD: Case = (
    (
        (
            "What is the capital of Chile?",
            "Tell me the capital of Chile",
            "Give us the capital of Chile",
            "Can you tell me the capital of Chile?",
            "Could you please give me the capital of Chile?",
            "I want to know the capital of Chile",
            "I would like to know the capital of Chile",
            "Name the capital of Chile",
            "The capital of Chile",
            "capital of Chile",
            "What is the capital city of Chile?",
            "Which city is the capital of Chile?",
            "Tell me the capital city of Chile",
        ),
        ("What is the price of a boiler?", "Tell me the price of a boiler", "How much is a boiler?"),
        ("Why is the sky blue?", "Tell me the reason why the sky is blue", "What is the reason the sky is blue?"),
        ("How many people live in Oslo?", "population of Oslo", "the population of Oslo"),
        ("What is the currency of Norway?", "currency of Norway"),
        ("What is the definition of debt?", "definition of debt"),
        ("How tall is the tower?", "height of the tower"),
        ("What are the symptoms of flu?", "symptoms of flu", "Tell me the symptoms of flu"),
        ("What is the cause of asthma?", "causes of asthma"),
        (
            "What is the difference between a lion and a tiger?",
            "Explain the difference between a lion and a tiger",
            "Can you explain to me the difference between a lion and a tiger?",
            "Could you describe the differences between a lion and a tiger?",
            "difference between a lion and a tiger",
            "differences between a lion and a tiger",
            "What is different between a lion and a tiger?",
            "What are the differences between a lion and a tiger?",
        ),
        ("How far is it from Rome to Bari?", "distance between Rome and Bari"),
        (
            "What are examples of irony?",
            "What are some examples of irony?",
            "Give me some examples of irony",
            "Show me examples of irony",
            "examples of irony",
        ),
        ("When is the best time to visit Peru?", "What is the best time to visit Peru?"),
        ("When is the deadline for the form?", "What is the deadline for the form?"),
        ("When was the deadline for the form?", "What was the deadline for the form?"),
        ("What is vinegar used for?", "What are the uses of vinegar?"),
        ("Why is sleep important?", "What is the importance of sleep?"),
        (
            "What are the ingredients of pesto?",
            "Which ingredients are in pesto?",
            "What are the ingredients for pesto?",
        ),
        ("What amount of salt is in soup?", "What quantity of salt is in soup?"),
    ),
    (
        ("Tell me the capital of Chile", "Tell me the currency of Chile"),
        ("Tell me the capital of Chile", "Tell me a capital of Chile"),
        ("Tell me the capital of Chile", "What was the capital of Chile?"),
        ("Tell me the capital of Chile", "Tell me the capitals of Chile"),
        ("Tell her the price of a boiler", "What is the price of a boiler?"),
        ("Do not tell me the plot of Dune", "What is the plot of Dune?"),
        ("Can I tell you the plot of Dune?", "What is the plot of Dune?"),
        ("Can you tell him the plot of Dune?", "What is the plot of Dune?"),
        ("I wanted to know the plot of Dune", "I want to forget the plot of Dune"),
        ("symptoms of flu are mild", "What are the symptoms of flu?"),
        ("capital of Chile", "capital in Chile"),
        ("name of the capital of Chile", "What is the capital of Chile?"),
        ("Name a capital of Chile", "What is the capital of Chile?"),
        ("The capital city of Chile is big", "What is the capital of Chile?"),
        ("Which city is the capital of Chile?", "Which city was the capital of Chile?"),
        ("Which city is the largest of Chile?", "What is the capital of Chile?"),
        ("distance between Rome and Bari", "distance between Rome and Pisa"),
        ("distance between rails in Rome and Bari", "How far is it from Rome to Bari?"),
        ("Give me examples of irony", "Give me an example of irony"),
        ("When is the best time to visit Peru?", "When is the worst time to visit Peru?"),
        ("When is the deadline for the form?", "When was the deadline for the form?"),
        ("What are the uses of vinegar?", "What is the use of vinegar?"),
        ("What is the importance of sleep?", "What is the importance of being asleep?"),
        ("Explain the difference between a lion and a tiger", "Explain the difference between a lion and a cat"),
        ("Explain the difference between cats and dogs", "Explain the link between cats and dogs"),
    ),
)

WAYS: Case = (
    (
        (
            "How do I return a lamp?",
            "What is the process for returning a lamp?",
            "What is the procedure for returning a lamp?",
            "What are the steps for returning a lamp?",
            "Give me the instructions to return a lamp",
            "instructions to return a lamp",
            "How do I go about returning a lamp?",
            "How can one go about returning a lamp?",
            "steps to return a lamp",
            "The steps to return a lamp",
            "ways to return a lamp",
            "some ways to return a lamp",
            "What can I do to return a lamp?",
            "What must I do to return a lamp?",
            "What steps do I need to take to return a lamp?",
            "Tell me the steps to return a lamp",
        ),
        ("How can I reset the password of a router?", "How can the password of a router be reset?"),
        *(
            (f"How do I {verb} the module?", f"How can the module be {participle}?")
            for verb, participle in (
                ("install", "installed"),
                ("uninstall", "uninstalled"),
                ("configure", "configured"),
                ("activate", "activated"),
                ("deactivate", "deactivated"),
                ("upgrade", "upgraded"),
                ("downgrade", "downgraded"),
                ("export", "exported"),
                ("enable", "enabled"),
                ("disable", "disabled"),
            )
        ),
        (
            "Where do I find the key?",
            "Where can I find the key?",
            "Where to find the key?",
            "Where can the key be found?",
        ),
        ("Where do I buy salt?", "Where could one buy salt?", "Where to buy salt", "Where can salt be bought?"),
        ("Where can I buy salt?", "Where can salt be purchased?"),
        ("Where do I download Excel?", "Where to download Excel?", "Where can Excel be downloaded?"),
        ("How often should I clean an oven?", "How often should an oven be cleaned?"),
        ("How long should I boil an egg?", "How long should an egg be boiled?"),
        (
            "How do I know if an egg is bad?",
            "How can I tell if an egg is bad?",
            "How can one know whether an egg is bad?",
        ),
        ("What is the deadline to apply for a visa?", "What is the deadline for applying for a visa?"),
        ("What is the best time to visit Peru?", "What is the best time for visiting Peru?"),
        ("What is the best way to learn chess?", "What is the best way of learning chess?"),
        ("What are the requirements to work as a pilot?", "What are the requirements for working as a pilot?"),
        (
            "What is the minimum age to drive in Peru?",
            "How old do I have to be to drive in Peru?",
            "How old must one be to drive in Peru?",
            "How old do you need to be to drive in Peru?",
            "What age do I need to be to drive in Peru?",
            "What age must I be to drive in Peru?",
            "At what age can I drive in Peru?",
            "From what age may one drive in Peru?",
            "What is the minimum age for driving in Peru?",
        ),
        (
            "How much does it cost to build a shed?",
            "What is the cost of building a shed?",
            "What is the cost to build a shed?",
        ),
        ("How much does it cost to fly to Rome?", "How much is it to fly to Rome?"),
    ),
    (
        ("What is the process of aging?", "How do I age?"),
        ("What are the steps for dances?", "How do I dance?"),
        ("instructions to return a lamp", "reasons to return a lamp"),
        ("Can Excel be installed on a tablet?", "Can you install Excel on a tablet?"),
        ("Can Excel be installed on a tablet?", "Should Excel be installed on a tablet?"),
        ("Can Excel be installed by a robot?", "Can I install Excel by a robot?"),
        ("Can my phone be reset?", "Can I reset my phone?"),
        ("Can a human be cloned?", "Can I clone a human?"),
        ("What is the process for returns?", "How do I return?"),
        ("How do I go about town?", "How do I town?"),
        ("How do I go about returning a lamp?", "How do I go about renting a lamp?"),
        ("How do we go about returning a lamp?", "How do I return a lamp?"),
        ("What should I do to return a lamp?", "How do I return a lamp?"),
        ("What can I do to return a lamp?", "What did I do to return a lamp?"),
        ("What can we do to return a lamp?", "How do I return a lamp?"),
        ("steps to return a lamp", "steps to repair a lamp"),
        ("How can lungs be infected?", "How do I infect lungs?"),
        ("How can a computer be hacked?", "How do I hack a computer?"),
        ("How can a flight be cancelled without notice?", "How can I cancel a flight without notice?"),
        ("How can my account be disabled?", "How can I disable my account?"),
        ("How much should nurses be paid?", "How much should I pay nurses?"),
        ("How long should an egg be?", "How long should I be an egg?"),
        ("How can a module be installed by Bob?", "How do I install a module?"),
        ("How can a module not be installed?", "How do I install a module?"),
        ("How should a module be installed?", "How do I install a module?"),
        ("How can a module be installed?", "How can a module be uninstalled?"),
        ("Can a module be installed?", "How do I install a module?"),
        ("Where do I live?", "Where can I live?"),
        ("Where do I park?", "Where can I park?"),
        ("Where do you buy salt?", "Where do I buy salt?"),
        ("Where did I buy salt?", "Where can I buy salt?"),
        ("Where can salt be found?", "Where can salt be bought?"),
        ("Where can salt be bought by a child?", "Where can I buy salt?"),
        ("Where should I buy salt?", "Where can I buy salt?"),
        ("How should refugees be treated?", "How should I treat refugees?"),
        ("How often should an oven be cleaned?", "How often can an oven be cleaned?"),
        ("How often should an oven be cleaned by a cook?", "How often should I clean an oven?"),
        ("How often should I be paid?", "How often should I pay?"),
        ("How often should he be paid?", "How often should I pay him?"),
        ("How can I tell if an egg is bad?", "How can I tell him if an egg is bad?"),
        ("How can I tell if an egg is bad?", "How can I tell when an egg is bad?"),
        ("How old do I have to be to drive in Peru?", "How old does a car have to be to drive in Peru?"),
        ("At what age can I drive in Peru?", "At what age should I drive in Peru?"),
        ("At what age can I drive in Peru?", "What is the maximum age to drive in Peru?"),
        ("What is the cost of a shed?", "How much does it cost to shed?"),
        ("What is the cost of building a shed?", "What was the cost of building a shed?"),
        ("What is the deadline for visas?", "What is the deadline to visa?"),
        ("What is the best way of learning chess?", "What is the best way of teaching chess?"),
        ("What is the best way of learning chess?", "How do I learn chess?"),
    ),
)

PLACED: Case = (
    (
        ("Which city is the tower in?", "In which city is the tower?", "In what city is the tower?"),
        ("Who does the car belong to?", "To whom does the car belong?"),
        ("Who was Dune written by?", "By whom was Dune written?", "Who wrote Dune?"),
        ("Whose name is the car in?", "In whose name is the car?"),
        ("What day is the match?", "On what day is the match?", "On which day is the match?"),
        ("What month is the match?", "In which month is the match?"),
        ("What century did Bach live?", "In what century did Bach live?"),
        ("At what temperature does lead boil?", "What is the boiling point of lead?"),
        ("At what temperature does lead melt?", "What is the melting point of lead?"),
        ("At what temperature does lead freeze?", "What is the freezing point of lead?"),
        ("Can I install Excel on a tablet?", "Can Excel be installed on a tablet?"),
        ("Can I install Excel on a tablet?", "Could Excel be installed on a tablet?"),
        ("What temperature does lead melt?", "At which temperature does lead melt?"),
        ("What speed do bees fly?", "At what speed do bees fly?"),
        (
            "How does a fridge work?",
            "In what way does a fridge work?",
            "In which ways does a fridge work?",
            "In what ways does a fridge work?",
        ),
        ("How does a fridge work?", "How exactly does a fridge work?"),
        ("What is a fridge?", "What exactly is a fridge?"),
        ("Why does a fridge hum?", "Why exactly does a fridge hum?"),
        ("How do I get from Rome to Bari?", "How do I get to Bari from Rome?"),
        *(
            (f"What is the fastest of {way} from Rome to Bari?", f"What is the fastest of {way} to Bari from Rome?")
            for way in word_set("flight flights train trains bus buses way")
        ),
        *(
            (f"How do I {move} from Rome to Bari?", f"How do I {move} to Bari from Rome?")
            for move in word_set("get go travel fly drive walk")
        ),
        ("Why isn't my printer working?", "Why is my printer not working?"),
        ("Why can't I log in?", "Why can I not log in?"),
        ("Why doesn't the printer print?", "Why does the printer not print?"),
        *(
            (f"Why can't {who} swim?", f"Why can {who} not swim?")
            for who in ["I", "we", "you", "he", "she", "it", "they", "a man", "the man"]
        ),
        *(
            (f"Why can't {whose} dog swim?", f"Why can {whose} dog not swim?")
            for whose in word_set("my our your his her its their")
        ),
        ("How do I check a disk on Linux?", "On Linux how do I check a disk?", "On Linux, how do I check a disk?"),
        ("Who is the tallest of the nine?", "Of the nine who is the tallest?"),
        ("How do I read a file using pandas?", "Using pandas, how do I read a file?"),
        ("Which country is Riga in?", "Which country is Riga located in?", "In which country is Riga located?"),
        ("Is Riga in Latvia?", "Is Riga located in Latvia?"),
        ("Are the keys in the box?", "Are the keys situated in the box?", "Are the keys located in the box?"),
        ("How many states are in India?", "How many states are there in India?"),
        ("How much water is on Mars?", "How much water is there on Mars?"),
        ("What museums are at the port?", "What museums are there at the port?"),
        (
            "Which is the highest mountain in Asia?",
            "Which mountain is the highest in Asia?",
            "What mountain is highest in Asia?",
        ),
        ("What is the most populous state of India?", "Which state is the most populous of India?"),
        ("Which was the highest mountain in Asia?", "Which mountain was the highest in Asia?"),
        ("Who is the oldest in the world?", "Which person is the oldest in the world?"),
        ("What is the least expensive car?", "Which car is the least expensive?"),
        *(
            (f"What is the {word} car?", f"Which car is the {word}?")
            for word in word_set(
                "best worst biggest largest smallest highest longest shortest tallest deepest oldest youngest fastest"
                " slowest cheapest closest nearest strongest"
            )
        ),
        ("Which river flows through Rome?", "What is the river that flows through Rome?"),
        ("Which river flows through Rome?", "What is the name of the river that flows through Rome?"),
        ("Which countries border Mali?", "What are the countries that border Mali?"),
    ),
    (
        ("When exactly did Rome fall?", "When did Rome fall?"),
        ("What exactly is a fridge?", "What exactly was a fridge?"),
        ("How do I get from Rome to Bari?", "How do I get from Bari to Rome?"),
        ("How do I get to Bari from Rome?", "How do I get to Rome from Bari?"),
        ("How do I send a letter to men from Rome?", "How do I send a letter from Rome to men?"),
        ("How do I walk to the man from Rome?", "How do I walk from Rome to the man?"),
        ("How do I get to Bari from Rome by bus?", "How do I get from Rome to Bari?"),
        ("Why did he tell me not to go?", "Why didn't he tell me to go?"),
        ("Why did the man say not guilty?", "Why didn't the man say guilty?"),
        ("Why did Bob choose not Al?", "Why didn't Bob choose Al?"),
        ("Why isn't my printer working?", "Why is my printer working?"),
        ("Why isn't my printer working?", "Why wasn't my printer working?"),
        ("Why isn't my printer working?", "Why isn't your printer working?"),
        ("Can't my printer print?", "Can my printer not print?"),
        ("In which way does the wheel turn?", "How does the wheel turn?"),
        ("What is the reason that birds sing?", "Which reason do birds sing?"),
        ("What is the boiling point of lead?", "What is the melting point of lead?"),
        ("What is the boiling point of lead?", "What is the boiling point of zinc?"),
        ("In which city is the tower?", "Near which city is the tower?"),
        ("In which city is the tower?", "Which city is the tower?"),
        ("In which city is the tower?", "In which country is the tower?"),
        ("To whom does the car belong?", "To what does the car belong?"),
        ("From whom did Bob buy the car?", "For whom did Bob buy the car?"),
        ("To whom did Bob sell the car?", "Who sold Bob the car?"),
        ("On what day is the match?", "In what month is the match?"),
        ("On what day is the match?", "What day was the match?"),
        ("On which bridge is the match?", "Which bridge is the match?"),
        ("On Linux how do I check a disk?", "How do I check a disk?"),
        ("On Linux how do I check a disk?", "On macOS how do I check a disk?"),
        ("After lunch who is at the bar?", "Before lunch who is at the bar?"),
        ("With what is a lion fed?", "What is a lion fed?"),
        ("In a town where is the bank?", "In the town where is the bank?"),
        ("Using pandas, how do I read a file?", "Using polars, how do I read a file?"),
        ("Which country was Riga located in?", "Which country is Riga in?"),
        ("When was the ship located in the sea?", "When was the ship in the sea?"),
        ("Is Riga located in Latvia?", "Is Riga located near Latvia?"),
        ("Who located in 1985 the ship?", "Who in 1985 the ship?"),
        ("Are there museums in Rome?", "Are museums in Rome?"),
        ("How many states are there in India?", "How many states were there in India?"),
        ("How many states are there in India?", "How many states are there near India?"),
        ("How long are there queues in Rome?", "How long are queues in Rome?"),
        ("Which mountain is the highest in Asia?", "Which mountain is the lowest in Asia?"),
        ("Which mountain is the highest in Asia?", "Which mountain was the highest in Asia?"),
        ("Which mountain is the highest in Asia?", "Which mountain is higher in Asia?"),
        ("Which mountain is the highest bridge near?", "Which is the highest mountain bridge near?"),
        ("Which of the cars is the best?", "Which is the best of the cars?"),
        ("Which team is the best at home?", "Which team is the best at away games?"),
        ("Which car is most likely to fail?", "Which car is the least likely to fail?"),
        ("Which city is in the most debt?", "What is the most city in debt?"),
        ("What is the river that flows through Rome?", "What was the river that flows through Rome?"),
        ("What is the river that flows through Rome?", "What are the rivers that flow through Rome?"),
        ("What is the river in Rome that floods?", "Which river floods?"),
        ("What is the name of the son that left Rome?", "Which name left Rome?"),
        ("What is the river that does not flood?", "Which river floods?"),
        ("What is the name of the river?", "What is the river that names?"),
        ("Where is the card that was used?", "Where is the card that is used?"),
        ("How do I get the card that is blocked?", "How do I get the card blocked?"),
        ("Is the food that is served hot?", "Is the food served hot?"),
        ("Where is the card that is used?", "Where is the card that is not used?"),
    ),
)

COMPARED: Case = (
    (
        (
            "What is the difference between a lion and a tiger?",
            "How does a lion differ from a tiger?",
            "How do a lion and a tiger differ?",
            "How do a lion and a tiger differ from each other?",
            "How are a lion and a tiger different from one another?",
            "How is a lion different from a tiger?",
            "How is a lion different to a tiger?",
            "How is a lion different than a tiger?",
            "How are a lion and a tiger different?",
            "Can you tell me how a lion differs from a tiger?",
            "Can you tell me how a lion is different from a tiger?",
            "What makes a lion different from a tiger?",
            "In what way does a lion differ from a tiger?",
        ),
        ("What was the difference between Athens and Sparta?", "How did Athens differ from Sparta?"),
        ("What was the difference between Athens and Sparta?", "How were Athens and Sparta different?"),
        ("How do men and women differ in Peru?", "What is the difference between men and women in Peru?"),
        (
            "How far is it from Rome to Bari?",
            "What is the distance between Rome and Bari?",
            "How far is Rome from Bari?",
        ),
        ("How far is it from Rome to Bari?", "How far away is Rome from Bari?"),
    ),
    (
        ("How does a lion differ from a tiger?", "How does a lion differ from a cat?"),
        ("How does a lion differ from a tiger?", "How did a lion differ from a tiger?"),
        ("How does a lion differ from a tiger?", "How does a lion not differ from a tiger?"),
        ("How do a lion and a tiger differ?", "How do a lion or a tiger differ?"),
        ("How are cats and dogs different from wolves?", "What is the difference between cats and dogs?"),
        ("How are cats and dogs different from wolves?", "What is the difference between dogs and wolves?"),
        ("How are cats different from dogs and wolves?", "What is the difference between cats and dogs?"),
        ("How do cats differ?", "What is the difference between cats?"),
        ("How is a lion similar to a tiger?", "How is a lion different from a tiger?"),
        ("How different is a lion from a tiger?", "What is the difference between a lion and a tiger?"),
        ("How much does a lion differ from a tiger?", "How does a lion differ from a tiger?"),
        ("Why does a lion differ from a tiger?", "How does a lion differ from a tiger?"),
        ("How can a lion differ from a tiger?", "How does a lion differ from a tiger?"),
        ("How do men and women differ in Peru?", "How do men and women differ on Peru?"),
        ("What makes a lion different?", "How is a lion different from a tiger?"),
        ("How far is it from Rome to Bari?", "How far is it from Rome to Pisa?"),
        ("How far is Rome from the church by the sea?", "How far is it from Rome to the church?"),
        ("How far is Bari from Rome in Italy?", "How far is it from Bari to Rome?"),
        ("How far was Rome from Bari?", "How far is Rome from Bari?"),
        ("How far is it from Rome?", "How far is it to Rome?"),
        ("What is the distance between Rome and Bari and Pisa?", "How far is it from Rome to Bari?"),
        ("What is the difference between Rome and Bari?", "What is the distance between Rome and Bari?"),
    ),
)

NEEDED: Case = (
    (
        ("What tools do I need to hang a door?", "What tools are needed to hang a door?"),
        (
            "What do I need to open an account?",
            "What is needed to open an account?",
            "What is required to open an account?",
        ),
        ("How much paint do I need to coat a room?", "How much paint is required to coat a room?"),
        (
            "How much paint do I need for a room?",
            "How much paint is needed for a room?",
            "How much paint is required for a room?",
        ),
        ("How many eggs do I need for a cake?", "How many eggs are needed for a cake?"),
        ("How many eggs did I need for a cake?", "How many eggs were needed for a cake?"),
        ("Do I need a visa to visit Japan?", "Is a visa needed to visit Japan?", "Is a visa required to visit Japan?"),
        ("Do I need skates for the rink?", "Are skates required for the rink?"),
        *(
            (f"Do I need a {thing} to work in Peru?", f"Is a {thing} required to work in Peru?")
            for thing in word_set("visa passport document licence license permit prescription deposit")
        ),
        ("Which documents do I need to fly?", "Which documents are required to fly?"),
        ("Which visas do I need to work in Peru?", "Which visas are required to work in Peru?"),
        ("How long does it take to bake bread?", "What is the time needed to bake bread?"),
        ("How long does it take to bake bread?", "How much time is required to bake bread?"),
        ("What is the effect of salt on ice?", "What effect does salt have on ice?"),
        ("What was the impact of war on art?", "What impact did war have on art?"),
        ("What is the influence of Mars on tides?", "What influence does Mars have on tides?"),
        ("What are the effects of salt on ice?", "What effects does salt have on ice?"),
        ("What are the symptoms of flu?", "What symptoms does flu have?"),
        ("What is the symptom of flu?", "What symptom does flu have?"),
        ("What is the effect of salt?", "What effect does salt have?"),
        ("What are the effects of salt?", "What effects does salt have?"),
        ("How many people live in Oslo?", "What population does Oslo have?"),
        ("What is the currency of Peru?", "What currency does Peru have?"),
        ("What is the cause of hiccups?", "What causes hiccups?", "What are the causes of hiccups?"),
        ("What was the cause of the fire?", "What caused the fire?", "What were the causes of the fire?"),
        ("Am I allowed to smoke in Rome?", "Is smoking allowed in Rome?", "Is smoking permitted in Rome?"),
        ("Am I allowed to fly a kite in Rome?", "Is flying a kite allowed in Rome?"),
        ("Is it allowed to smoke?", "Is smoking permitted?"),
        ("Is it possible to park in Rome?", "Is parking possible in Rome?"),
        *(
            (f"Is it allowed to swim {place} a game?", f"Is swimming allowed {place} a game?")
            for place in word_set("in on at during before after near")
        ),
        (
            "How long does it take for bread to rise?",
            "How long does bread take to rise?",
            "How long does it take bread to rise?",
        ),
        ("How much time does it take for bread to rise?", "How much time does bread take to rise?"),
        *(
            (f"What clothes are {done} in Peru?", f"What clothes do people {verb} in Peru?")
            for verb, done in (
                ("speak", "spoken"),
                ("eat", "eaten"),
                ("drink", "drunk"),
                ("wear", "worn"),
                ("use", "used"),
                ("play", "played"),
                ("celebrate", "celebrated"),
            )
        ),
        ("What is eaten in Peru?", "What do people eat in Peru?"),
        ("How much paint did I need for a room?", "How much paint was needed for a room?"),
        ("How long did it take for Rome to fall?", "How long did Rome take to fall?"),
        ("How long will it take for bread to rise?", "How long will bread take to rise?"),
    ),
    (
        ("What tools are needed to hang a door?", "What tools were needed to hang a door?"),
        ("What tools are needed to hang a door?", "What tools are needed to paint a door?"),
        ("What tools are not needed to hang a door?", "What tools do I need to hang a door?"),
        ("What tools are needed by a joiner to hang a door?", "What tools do I need to hang a door?"),
        ("What tools do we need to hang a door?", "What tools are needed to hang a door?"),
        ("What do people build in Peru?", "What is built in Peru?"),
        ("What did people eat in Peru?", "What is eaten in Peru?"),
        ("What do people eat in Peru?", "What do people drink in Peru?"),
        ("What do people eat by hand in Peru?", "What is eaten by hand in Peru?"),
        ("What do people use forks for in Peru?", "What is used for forks in Peru?"),
        ("What do you eat in Peru?", "What is eaten in Peru?"),
        ("Why do people eat in Peru?", "What is eaten in Peru?"),
        ("What do old people eat in Peru?", "What is eaten in Peru?"),
        ("Is a landlord required to fix the boiler?", "Do I need a landlord to fix the boiler?"),
        ("Is a landlord required to fix the boiler?", "Is a landlord needed to fix the boiler?"),
        ("Which staff are required to pay tax?", "Which staff do I need to pay tax?"),
        ("Are you required to pay tax?", "Do I need you to pay tax?"),
        ("Is she needed to sign?", "Do I need to sign?"),
        ("Is my visa needed to fly?", "Do I need a visa to fly?"),
        ("Is a visa needed in Japan?", "Is a visa needed for Japan?"),
        ("How badly is paint needed for a room?", "How much paint do I need for a room?"),
        ("How often is a visa needed to fly?", "Do I need a visa to fly?"),
        ("What effect does salt have on ice?", "What effect does ice have on salt?"),
        ("What effect does salt have on ice?", "What effect does salt have on steel?"),
        ("What effect does salt have on ice?", "What effect did salt have on ice?"),
        ("What effect does salt not have on ice?", "What effect does salt have on ice?"),
        ("What fear do spiders have?", "What is the fear of spiders?"),
        ("What benefits do staff have?", "What are the benefits of staff?"),
        ("What photos does Bob have?", "What are the photos of Bob?"),
        ("What symptoms does flu have?", "What symptoms do flus have in cats?"),
        ("What symptoms does flu have?", "What effects does flu have?"),
        ("What causes hiccups?", "What caused hiccups?"),
        ("What causes hiccups?", "What do hiccups cause?"),
        ("What causes the cold?", "What causes a cold?"),
        ("What causes does Oxfam support?", "What is the cause of Oxfam's support?"),
        ("What causes the fire?", "What causes the fires?"),
        ("Is smoking allowed in Rome?", "Is smoking allowed near Rome?"),
        ("Is smoking allowed in Rome?", "Is smoking possible in Rome?"),
        ("Is smoking not allowed in Rome?", "Is it allowed to smoke in Rome?"),
        ("Is smoking allowed by the pool?", "Is it allowed to smoke by the pool?"),
        ("Is dancing allowed for children?", "Is it allowed to dance for children?"),
        ("Was smoking allowed in Rome?", "Is smoking allowed in Rome?"),
        ("Is a building allowed in Rome?", "Is it allowed to build in Rome?"),
        ("How long does bread take to rise?", "How long did bread take to rise?"),
        ("How long does bread take to rise?", "How long does it take to raise bread?"),
        ("How long does it take bread to rise?", "How long does it take to rise?"),
        ("How long does it take to fly to Rome?", "How long does it take for Rome to fly?"),
        ("How long does it take a man to fool a dog?", "How long does it take a dog to fool a man?"),
        ("How long does it take by bus to Rome?", "How long does it take for a bus to Rome?"),
        ("How long does bread take in Rome to rise?", "How long does bread in Rome take?"),
    ),
)


COMMANDED: Case = (
    (
        *(
            (f"{verb} a text on Peru", f"Can you {verb} us a text on Peru?", f"Please {verb} a text on Peru")
            for verb in word_set("write draft compose summarize recommend suggest create generate")
        ),
        ("Write a text on Peru", "Could you please write me a text on Peru?", "Would you kindly write a text on Peru?"),
        (
            "Summarize the plot of Dune",
            "Will you kindly summarise the plot of Dune?",
            "Please summarise the plot of Dune",
        ),
    ),
    (
        ("Can you write code?", "Write code"),
        ("Can you write a will without a lawyer?", "Write a will without a lawyer"),
        ("Would you recommend a tent in Peru?", "Recommend a tent in Peru"),
        ("Could you please write code?", "Write code"),
        ("Can I write a text on Peru?", "Write a text on Peru"),
        ("Can you write me a text on Peru?", "Write a text on Chile"),
        ("Can you write me a text on Peru?", "Can you write me a poem on Peru?"),
        ("Can you eat a pie in Peru?", "Eat a pie in Peru"),
        ("Did you write a text on Peru?", "Write a text on Peru"),
        ("Can you write her a text on Peru?", "Write a text on Peru"),
        ("Write a text on Peru", "Write the text on Peru"),
        ("Can you please?", "Can you please write?"),
    ),
)

CONVERTED: Case = (
    (
        (
            "Convert 5 miles to km",
            "Change 5 miles into kilometers",
            "convert 5 mile in km",
            "What is 5 miles in km?",
            "How much is five miles in kilometres?",
            "How many km is 5 miles?",
            "How many km are 5 miles?",
            "How many kilometers are in 5 miles?",
            "How many kilometers are there in 5 miles?",
        ),
        *(
            (f"Convert 5 {one} to {to}", f"How many {to} are in 5 {other}?", f"What is 5 {one} in {to}?")
            for one, other, to in (
                ("inch", "inches", "cm"),
                ("foot", "feet", "cm"),
                ("ft", "feet", "cm"),
                ("yard", "yards", "cm"),
                ("ounce", "ounces", "grams"),
                ("oz", "ounces", "grams"),
                ("pound", "pounds", "grams"),
                ("stone", "stones", "kg"),
                ("pint", "pints", "litres"),
                ("gallon", "gallons", "litres"),
                ("acre", "acres", "hectares"),
                ("hectare", "hectares", "acres"),
            )
        ),
        ("Convert 5 celsius to fahrenheit", "What is 5 celsius in fahrenheit?"),
        ("Convert 5 fahrenheit to celsius", "What is 5 fahrenheit in celsius?"),
    ),
    (
        ("Convert 5 miles to km", "Convert 6 miles to km"),
        ("Convert 5 miles to km", "Convert 5 km to miles"),
        ("How many km is 5 miles?", "How many miles is 5 km?"),
        ("How many km is 5 miles?", "How many km was 5 miles?"),
        ("How many km are 5 miles?", "How many km are not 5 miles?"),
        ("What is 5 miles in km?", "What is 5 miles in m?"),
        ("What is 5 miles in km?", "Where is 5 miles in km?"),
        ("How many cups are in 5 miles?", "How many km are in 5 miles?"),
        ("How many grams are in 5 ounces of salt?", "How many grams are in 5 ounces?"),
        ("How much is 5 pounds in dollars?", "How much is 5 pounds in euros?"),
        ("How many days are in a week?", "How many days are in 5 weeks?"),
        ("Convert 5th mile to km", "Convert 5 miles to km"),
    ),
)


class RewordingTest(QuestionCase):
    """Which constructions ask the same."""

    def check(self, case: Case) -> None:
        """The groups are one question each, and the pairs are two."""
        for questions in case[0]:
            self.same(*questions)
        for one, other in case[1]:
            self.different(one, other)

    def test_a_measure_is_asked_by_noun_or_by_adjective(self) -> None:
        """And whose it is stands behind it or before."""
        self.check(MEASURES)

    def test_to_be_told_the_thing_is_to_ask_what_it_is(self) -> None:
        """So do nouns that are never asked otherwise."""
        self.check(TOLD)

    def test_who_asks_for_a_way_does_it(self) -> None:
        """Where the verb is one that anybody does."""
        self.check(WAYS)

    def test_what_says_where_stands_before_or_behind(self) -> None:
        """A preposition is neither lost nor changed by it."""
        self.check(PLACED)

    def test_two_things_differ_in_no_direction(self) -> None:
        """A third thing keeps them apart."""
        self.check(COMPARED)

    def test_what_is_needed_had_caused_allowed_or_taken(self) -> None:
        """Who needs, has, causes or takes it stays."""
        self.check(NEEDED)

    def test_to_be_asked_to_make_a_thing_is_to_be_told_to(self) -> None:
        """To be able to is another thing."""
        self.check(COMMANDED)

    def test_a_number_is_told_in_another_unit(self) -> None:
        """Whichever of the two is said first."""
        self.check(CONVERTED)

    def test_beside_a_sign_or_about_words_nothing_is_put_otherwise(self) -> None:
        """They may be what is asked about."""
        for words in ("how do cats , dogs and owls differ", "how does the word lion differ from tiger"):
            self.assertEqual(reworded(words.split()), words.split())

    def test_a_clause_fills_no_slot(self) -> None:
        """What it holds may belong to it."""
        for words in ("how does what i do differ from jazz", "capital of what is new", "what causes who is who"):
            self.assertEqual(reworded(words.split()), words.split())

    def test_the_river_that_flows_is_said_in_the_question(self) -> None:
        """That points at nothing else there; elsewhere it may."""
        self.assertNotIsInstance(read_eligible("What is the river that flows through Rome?"), Ineligible)
        for text in (
            "Is the river that flows through Rome deep?",
            "What is that flows through Rome?",
            "What is the best way to paint that car?",
            "What is a river that flows through Rome?",
            "Who is the man that flows through Rome?",
            "What does the river that flows mean?",
        ):
            self.assertIs(read_eligible(text), Ineligible.DEIXIS)

    def test_short_and_odd_texts_are_left_alone(self) -> None:
        """Every start of a question is read."""
        for case in (MEASURES, TOLD, WAYS, PLACED, COMPARED, NEEDED):
            for questions in case[0]:
                for question in questions:
                    words = question.lower().rstrip("?").split()
                    for end in range(len(words)):
                        reworded(words[:end])
                        reworded(words[end:])


if __name__ == "__main__":
    unittest.main()
